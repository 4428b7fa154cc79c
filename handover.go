package sqllock

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// handover is the content of the text that Detach returns and Adopt takes. No error and no
// log may show it: whoever knows the secret can become the holder.
type handover struct {
	name     string
	secret   [16]byte
	database [4]byte // of the hash of the id of the tables
}

// handoverPrefix begins each text. Tools that look for secrets can find them by it.
const handoverPrefix = "sqllock1_"

// newHandover makes a handover of a name in the database with an id.
func newHandover(name, database string) *handover {
	h := &handover{name: name, database: databaseMark(database)}
	_, _ = rand.Read(h.secret[:]) // never fails
	return h
}

// databaseMark tells one database from others, in most cases.
func databaseMark(id string) (mark [4]byte) {
	copy(mark[:], hashOf("database", []byte(id)))
	return mark
}

// hashOf is a hash for one purpose only.
func hashOf(purpose string, b []byte) []byte {
	sum := sha256.Sum256(append([]byte("sqllock handover "+purpose+"\x00"), b...))
	return sum[:]
}

// key is what the row says while the term is detached. Whoever can read the row does not
// learn the secret from it.
func (h *handover) key() (key driver.ID) {
	copy(key[:], hashOf("key", h.secret[:]))
	return key
}

// text is the secret, the database, the name and a check sum, in letters that a URL may have.
func (h *handover) text() string {
	b := append(append(h.secret[:len(h.secret):len(h.secret)], h.database[:]...), h.name...)
	return handoverPrefix + base64.RawURLEncoding.EncodeToString(append(b, checkSum(b)...))
}

const checkSumLen = 4

func checkSum(b []byte) []byte { return hashOf("check", b)[:checkSumLen] }

// parseHandover reads a text. Its errors do not show the text or parts of it.
func parseHandover(text string) (*handover, error) {
	h, err := decodeHandover(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the handover of %d bytes is not one that Detach has returned: %w", ErrInvalidOption, len(text), err)
	}
	return h, nil
}

func decodeHandover(text string) (*handover, error) {
	encoded, ok := strings.CutPrefix(text, handoverPrefix)
	if !ok {
		return nil, errors.New("it does not begin with " + handoverPrefix)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, errors.New("a byte of it is not in the alphabet of base64url")
	}
	h := new(handover)
	n := len(b) - checkSumLen
	if n <= len(h.secret)+len(h.database) || !bytes.Equal(checkSum(b[:n]), b[n:]) {
		return nil, errors.New("it was changed, or a part of it is missing")
	}
	copy(h.secret[:], b)
	copy(h.database[:], b[len(h.secret):])
	h.name = string(b[len(h.secret)+len(h.database) : n])
	if driver.CheckName(h.name) != nil {
		return nil, errors.New("its name is not one")
	}
	return h, nil
}
