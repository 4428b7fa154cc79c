package certmagiclock_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	certmagiclock "github.com/sqllock/sqllock/certmagic"
	"github.com/sqllock/sqllock/internal/testdb"
)

// The environment of the processes that tests start.
const (
	envEngine = "CERTMAGICLOCK_TEST_ENGINE" // else it is no such process
	envDSN    = "CERTMAGICLOCK_TEST_DSN"
	envDir    = "CERTMAGICLOCK_TEST_DIR"
	envTakes  = "CERTMAGICLOCK_TEST_TAKES" // how long it takes to issue a certificate
)

// shortTTL is one that a test waits for.
const shortTTL = 2 * time.Second

// authority issues certificates, and notes each in a file.
type authority struct {
	journal string
	takes   time.Duration
}

var _ certmagic.Issuer = (*authority)(nil)

func (a *authority) IssuerKey() string { return "authority" }

func (a *authority) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	fmt.Println("issues")
	select {
	case <-time.After(a.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file, err := os.OpenFile(a.journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(file, csr.DNSNames)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	text := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, text, text, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// replica is a server of a cluster that needs a certificate, as soon as its input is closed.
func replica() (err error) {
	engine, name := os.Getenv(envEngine), "mysql"
	switch engine {
	case testdb.Postgres:
		name = "pgx"
	case testdb.SQLite:
		name = "sqlite"
	}
	takes, err := time.ParseDuration(os.Getenv(envTakes))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	db, err := sql.Open(name, os.Getenv(envDSN))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	locks, err := openLocks(ctx, engine, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	dir := os.Getenv(envDir)
	storage, err := certmagiclock.New(&certmagic.FileStorage{Path: dir}, locks, "tls/", sqllock.TTL(shortTTL))
	if err != nil {
		return err
	}
	var magic *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
	})
	defer cache.Stop()
	magic = certmagic.New(cache, certmagic.Config{
		Storage: storage, Issuers: []certmagic.Issuer{&authority{filepath.Join(dir, "journal"), takes}},
	})
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return magic.ObtainCertSync(ctx, "www.example.com")
}

// process is a replica as its parent sees it.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func start(t *testing.T, d *testdb.Database, dir string, takes time.Duration) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), envEngine+"="+d.Engine(), envDSN+"="+d.DSN(), envDir+"="+dir, envTakes+"="+takes.String())
	p.cmd.Stderr = t.Output()
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	p.expect("ready")
	return p
}

// expect reads a line of the process.
func (p *process) expect(want string) {
	p.t.Helper()
	if line, err := p.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
		p.t.Fatalf("%q, %v", line, err)
	}
}

// wait waits for the end of the process.
func (p *process) wait() {
	p.t.Helper()
	_, _ = io.Copy(io.Discard, p.out)
	if err := p.cmd.Wait(); err != nil {
		p.t.Error(err)
	}
}

// issued counts the certificates that were issued.
func issued(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		t.Error(err)
	}
	return strings.Count(string(text), "[www.example.com]")
}

func TestOneOfThreeProcessesObtainsTheCertificate(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d, dir := testdb.New(t, engine), t.TempDir()
			all := []*process{}
			for range 3 {
				all = append(all, start(t, d, dir, shortTTL+shortTTL/2))
			}
			for _, p := range all {
				_ = p.in.Close()
			}
			for _, p := range all {
				p.wait()
			}
			if n := issued(t, dir); n != 1 {
				t.Errorf("%d certificates were issued", n)
			}
			if _, err := os.Stat(filepath.Join(dir, "locks")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the locks of the inner storage were used: %v", err)
			}
		})
	}
}

func TestAnotherProcessObtainsTheCertificateWhenTheFirstIsKilled(t *testing.T) {
	t.Parallel()
	d, dir := testdb.New(t, testdb.Postgres), t.TempDir()
	first := start(t, d, dir, testTimeout)
	_ = first.in.Close()
	first.expect("issues")
	second := start(t, d, dir, 0)
	_ = second.in.Close()
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second.wait()
	if n := issued(t, dir); n != 1 {
		t.Errorf("%d certificates were issued", n)
	}
}
