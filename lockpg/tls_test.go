package lockpg_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// useTLS has a server encrypt connections that ask for it. The files are written by
// the server itself, so that they are its own.
func useTLS(t *testing.T, server *testdb.Server) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	db := server.Open(t)
	for name, block := range map[string]*pem.Block{
		"server.crt": {Type: "CERTIFICATE", Bytes: cert}, "server.key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		mustExec(t, db, `SELECT lo_from_bytea(4711, $1)`, pem.EncodeToMemory(block))
		mustExec(t, db, `SELECT lo_export(4711, current_setting('data_directory') || '/' || $1::text)`, name)
		mustExec(t, db, `SELECT lo_unlink(4711)`)
	}
	// Exported files can be read by all, which the server refuses of a key.
	mustExec(t, db, `DO $$ BEGIN EXECUTE format('COPY (SELECT) TO PROGRAM %L', 'cat >/dev/null; chmod 600 ' || current_setting('data_directory') || '/server.key'); END $$`)
	mustExec(t, db, `ALTER SYSTEM SET ssl = on`)
	server.Restart()
}
