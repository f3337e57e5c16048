//! Encrypts a payload for one subscriber (RFC 8291) in the aes128gcm content encoding (RFC 8188).

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};

/// The maximum size of a request at a push service (RFC 8030, section 7.2).
pub const BODY_BYTES_MAX: usize = 4096;
const SALT_BYTES: usize = 16;
const POINT_BYTES: usize = 65;
/// Salt, record size, key length, the sender's public key.
const HEADER_BYTES: usize = SALT_BYTES + 4 + 1 + POINT_BYTES;
/// The tag of the only record, and the delimiter after the text.
const RECORD_OVERHEAD_BYTES: usize = 16 + 1;
/// The maximum length of a payload.
pub const PAYLOAD_BYTES_MAX: usize = BODY_BYTES_MAX - HEADER_BYTES - RECORD_OVERHEAD_BYTES;
const RECORD_SIZE: u32 = 4096;

/// Why a payload cannot be sent to a subscriber. No retry can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncryptFault {
    #[error("the payload has {0} bytes; at most {PAYLOAD_BYTES_MAX} fit into a push of {BODY_BYTES_MAX}")]
    TooLarge(usize),
    #[error("the subscription's p256dh is not a point on the P-256 curve")]
    PublicKey,
    #[error("the body has {0} bytes; a push service takes {BODY_BYTES_MAX}")]
    BodyTooLarge(usize),
    #[error("the body is not in the aes128gcm encoding: {0}")]
    Encoding(&'static str),
    #[error("the system gives no random numbers")]
    Random,
}

/// The decoded keys of a subscriber: `p256dh` (an uncompressed point) and `auth` (16 bytes).
#[derive(Clone, Copy)]
pub struct Receiver<'a> {
    pub public: &'a [u8],
    pub auth: &'a [u8],
}

impl std::fmt::Debug for Receiver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver(…)")
    }
}

/// The complete body of a push: header and one record.
pub fn encrypt(payload: &[u8], receiver: Receiver<'_>) -> Result<Vec<u8>, EncryptFault> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(EncryptFault::TooLarge(payload.len()));
    }
    let random = SystemRandom::new();
    let ours = EphemeralPrivateKey::generate(&ECDH_P256, &random).map_err(|_| EncryptFault::Random)?;
    let public = ours.compute_public_key().map_err(|_| EncryptFault::Random)?;
    let mut salt = [0; SALT_BYTES];
    random.fill(&mut salt).map_err(|_| EncryptFault::Random)?;
    let theirs = UnparsedPublicKey::new(&ECDH_P256, receiver.public);
    let sealed = agree_ephemeral(ours, &theirs, |secret| {
        seal(payload, &Agreed { secret, sender: public.as_ref(), receiver, salt })
    });
    sealed.map_err(|_| EncryptFault::PublicKey)?.ok_or(EncryptFault::Random)
}

/// The values that both sides know. Pure from here on, so that the RFC's example can be checked.
struct Agreed<'a> {
    secret: &'a [u8],
    sender: &'a [u8],
    receiver: Receiver<'a>,
    salt: [u8; SALT_BYTES],
}

/// A length for HKDF.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(salt: &[u8], key: &[u8], info: &[&[u8]]) -> Option<[u8; N]> {
    let mut out = [0; N];
    let extracted = Salt::new(HKDF_SHA256, salt).extract(key);
    extracted.expand(info, Bytes(N)).ok()?.fill(&mut out).ok()?;
    Some(out)
}

fn keys(agreed: &Agreed<'_>) -> Option<([u8; 16], [u8; 12])> {
    let Agreed { secret, sender, receiver, salt } = agreed;
    let info: [&[u8]; 3] = [b"WebPush: info\0", receiver.public, sender];
    let key: [u8; 32] = expand(receiver.auth, secret, &info)?;
    let content = expand(salt, &key, &[b"Content-Encoding: aes128gcm\0"])?;
    Some((content, expand(salt, &key, &[b"Content-Encoding: nonce\0"])?))
}

fn seal(payload: &[u8], agreed: &Agreed<'_>) -> Option<Vec<u8>> {
    let (content, nonce) = keys(agreed)?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &content).ok()?);
    let mut body = Vec::with_capacity(HEADER_BYTES + payload.len() + RECORD_OVERHEAD_BYTES);
    body.extend_from_slice(&agreed.salt);
    body.extend_from_slice(&RECORD_SIZE.to_be_bytes());
    body.push(agreed.sender.len() as u8);
    body.extend_from_slice(agreed.sender);
    let start = body.len();
    body.extend_from_slice(payload);
    // Marks the last record; padding would follow it.
    body.push(2);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut body[start..]).ok()?;
    body.extend_from_slice(tag.as_ref());
    Some(body)
}

/// Checks the header of a body that the producer encrypted, before a push service refuses it.
pub fn check(body: &[u8]) -> Result<(), EncryptFault> {
    if body.len() > BODY_BYTES_MAX {
        return Err(EncryptFault::BodyTooLarge(body.len()));
    }
    let wrong = |why| Err(EncryptFault::Encoding(why));
    let Some((header, records)) = body.split_at_checked(HEADER_BYTES) else {
        return wrong("it is shorter than its header");
    };
    let size = u32::from_be_bytes([header[16], header[17], header[18], header[19]]);
    if usize::from(header[20]) != POINT_BYTES || header[21] != 4 {
        return wrong("its key id is not the sender's public key");
    }
    if size < 18 {
        return wrong("its record size is below 18");
    }
    if records.len() < RECORD_OVERHEAD_BYTES {
        return wrong("it has no whole record");
    }
    // RFC 8291, section 4: a push message is a single record.
    if records.len() > size as usize { wrong("it has more than one record") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::keys::decode;

    fn bytes(text: &str) -> Vec<u8> {
        decode(text).unwrap()
    }

    /// RFC 8291, section 5 and appendix A.
    #[test]
    fn the_example_of_the_rfc_is_reproduced_byte_by_byte() {
        let public =
            bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4");
        let auth = bytes("BTBZMqHH6r4Tts7J_aSIgg");
        let sender =
            bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        let secret = bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        let salt: [u8; 16] = bytes("DGv6ra1nlYgDCS1FRnbzlw").try_into().unwrap();
        let receiver = Receiver { public: &public, auth: &auth };
        let agreed = Agreed { secret: &secret, sender: &sender, receiver, salt };
        let (content, nonce) = keys(&agreed).unwrap();
        assert_eq!(content.to_vec(), bytes("oIhVW04MRdy2XN9CiKLxTg"));
        assert_eq!(nonce.to_vec(), bytes("4h_95klXJ5E_qnoN"));
        let body = seal(b"When I grow up, I want to be a watermelon", &agreed).unwrap();
        assert_eq!(
            body,
            bytes(concat!(
                "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLoc",
                "InmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLV",
                "WGNWQexSgSxsj_Qulcy4a-fN"
            ))
        );
    }

    fn subscriber() -> (EphemeralPrivateKey, Vec<u8>) {
        let key = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
        let public = key.compute_public_key().unwrap().as_ref().to_vec();
        (key, public)
    }

    #[test]
    fn the_subscriber_decrypts_what_was_sent_and_every_push_differs() {
        let (key, public) = subscriber();
        let auth = [7; 16];
        let receiver = Receiver { public: &public, auth: &auth };
        let body = encrypt(b"hello", receiver).unwrap();
        assert_ne!(body, encrypt(b"hello", receiver).unwrap());
        assert_eq!(check(&body), Ok(()));
        let sender = &body[21..86];
        let opened = agree_ephemeral(key, &UnparsedPublicKey::new(&ECDH_P256, sender), |secret| {
            let salt = body[..16].try_into().unwrap();
            let (content, nonce) = keys(&Agreed { secret, sender, receiver, salt }).unwrap();
            let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &content).unwrap());
            let mut record = body[86..].to_vec();
            let nonce = Nonce::assume_unique_for_key(nonce);
            key.open_in_place(nonce, Aad::empty(), &mut record).unwrap().to_vec()
        });
        assert_eq!(opened.unwrap(), b"hello\x02");
    }

    #[test]
    fn the_largest_payload_fills_a_push_and_one_byte_more_is_refused() {
        let (_, public) = subscriber();
        let receiver = Receiver { public: &public, auth: &[7; 16] };
        let full = vec![b'x'; PAYLOAD_BYTES_MAX];
        assert_eq!(encrypt(&full, receiver).unwrap().len(), BODY_BYTES_MAX);
        let over = vec![b'x'; PAYLOAD_BYTES_MAX + 1];
        assert_eq!(encrypt(&over, receiver), Err(EncryptFault::TooLarge(PAYLOAD_BYTES_MAX + 1)));
    }

    #[test]
    fn a_key_that_is_no_point_on_the_curve_is_refused() {
        let receiver = Receiver { public: &[4; 65], auth: &[7; 16] };
        assert_eq!(encrypt(b"x", receiver), Err(EncryptFault::PublicKey));
    }

    #[test]
    fn a_foreign_body_must_have_a_sound_header() {
        let (_, public) = subscriber();
        let body = encrypt(b"x", Receiver { public: &public, auth: &[7; 16] }).unwrap();
        let changed = |change: fn(&mut Vec<u8>)| {
            let mut body = body.clone();
            change(&mut body);
            check(&body).is_err()
        };
        assert!(changed(|body| body.truncate(80)));
        assert!(changed(|body| body.truncate(90)));
        assert!(changed(|body| body[20] = 0));
        assert!(changed(|body| body[21] = 2));
        assert!(changed(|body| body[16..20].copy_from_slice(&[0, 0, 0, 17])));
        assert!(!changed(|body| body[16..20].copy_from_slice(&[0, 0, 0, 18])), "a record that just fits");
        assert!(changed(|body| body.resize(BODY_BYTES_MAX + 1, 0)));
    }
}
