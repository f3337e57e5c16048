// Verifies one request with the reference library for Go (v1) and crypto/ed25519 (v1a). Reads JSON, prints ok or no.
package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

type request struct {
	Key     string            `json:"key"`
	Body    string            `json:"body"`
	Headers map[string]string `json:"headers"`
}

func verify(r request) error {
	if strings.HasPrefix(r.Key, "whsec_") {
		webhook, err := standardwebhooks.NewWebhook(r.Key)
		if err != nil {
			return err
		}
		headers := http.Header{}
		for name, value := range r.Headers {
			headers.Set(name, value)
		}
		return webhook.Verify([]byte(r.Body), headers)
	}
	public, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.Key, "whpk_"))
	if err != nil {
		return err
	}
	content := r.Headers["webhook-id"] + "." + r.Headers["webhook-timestamp"] + "." + r.Body
	for _, signature := range strings.Split(r.Headers["webhook-signature"], " ") {
		encoded, isV1a := strings.CutPrefix(signature, "v1a,")
		bytes, err := base64.StdEncoding.DecodeString(encoded)
		if isV1a && err == nil && ed25519.Verify(public, []byte(content), bytes) {
			return nil
		}
	}
	return errors.New("no v1a signature matches")
}

func main() {
	var r request
	if err := json.NewDecoder(os.Stdin).Decode(&r); err != nil {
		fmt.Println("no:", err)
	} else if err := verify(r); err != nil {
		fmt.Println("no:", err)
	} else {
		fmt.Println("ok")
	}
}
