package main

import (
	"context"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connector connects as the driver does. Its errors have a text of ours: that of a driver
// repeats what it was told, which is more than anybody should see.
type connector struct {
	driver.Connector
	server string // where to
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, &connectError{server: c.server, err: err}
	}
	return conn, nil
}

// connectError is an error of connecting. What it wraps is for programs.
type connectError struct {
	server string
	err    error
}

func (e *connectError) Unwrap() error { return e.err }

func (e *connectError) Error() string {
	return fmt.Sprintf("cannot connect to %s: %s", e.server, connectReason(e.err))
}

// connectReason tells in one line why a connection was not made.
func connectReason(err error) string {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return withCode(postgresRefusals[pg.Code], "SQLSTATE "+pg.Code)
	}
	if my := (*mysql.MySQLError)(nil); errors.As(err, &my) {
		return withCode(mysqlRefusals[my.Number], "error "+strconv.Itoa(int(my.Number)))
	}
	for _, r := range networkRefusals {
		if errors.Is(err, r.err) {
			return r.text
		}
	}
	var unknown *net.DNSError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var timeout net.Error
	switch {
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return "no host of this name is known"
	case errors.As(err, &unknown):
		return "the name of the host cannot be looked up"
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid):
		return "the certificate of the server is not trusted; see sslrootcert (Postgres) or tls (MySQL) in the DSN"
	case strings.Contains(err.Error(), "refused TLS"), errors.Is(err, mysql.ErrNoTLS):
		return "the server offers no TLS, which the DSN asks for"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the server does not answer"
	}
	return "the driver failed (its message is not shown, as it may repeat the DSN)"
}

func withCode(reason, code string) string {
	if reason == "" {
		reason = "the server refuses it"
	}
	return reason + " (" + code + ")"
}

var postgresRefusals = map[string]string{
	"28P01": "the server refuses the user or the password",
	"28000": "the server refuses the user or the password, or this host (pg_hba.conf)",
	"3D000": "the server has no such database",
	"42501": "the account may not connect to the database: GRANT CONNECT ON DATABASE",
	"53300": "the server has no connection left (max_connections, or a limit of the account)",
	"57P03": "the server is starting up or shutting down",
	"57P01": "the server is shutting down",
	"55000": "the database takes no connections",
}

var mysqlRefusals = map[uint16]string{
	1040: "the server has no connection left (max_connections)",
	1044: "the account has no privilege on the database",
	1045: "the server refuses the user or the password",
	1049: "the server has no such database",
	1129: "the server blocks this host after too many errors: FLUSH HOSTS",
	1130: "the server takes no connections from this host",
	1203: "the account has no connection left (max_user_connections)",
	1226: "the account has no connection left (a limit of the account)",
	1698: "the server refuses the user or the password",
}

var networkRefusals = []struct {
	err  error
	text string
}{
	{syscall.ECONNREFUSED, "connection refused; is the server running, and is this its port?"},
	{fs.ErrNotExist, "there is no such socket; is the server running?"},
	{fs.ErrPermission, "the operating system denies it"},
	{syscall.EHOSTUNREACH, "there is no way to the host"},
	{syscall.ENETUNREACH, "there is no way to its network"},
	{syscall.ECONNRESET, "the server closed the connection"},
	{context.DeadlineExceeded, "the server does not answer"},
	{context.Canceled, "interrupted"},
	{io.ErrUnexpectedEOF, "the server closed the connection"},
	{io.EOF, "the server closed the connection"},
	{driver.ErrBadConn, "the server closed the connection"},
}

// postgresServers lists where a Postgres DSN leads.
func postgresServers(cfg *pgx.ConnConfig) string {
	servers := []string{serverName(cfg.Host, cfg.Port)}
	for _, f := range cfg.Fallbacks { // among them the same without TLS
		if s := serverName(f.Host, f.Port); !slices.Contains(servers, s) {
			servers = append(servers, s)
		}
	}
	return strings.Join(servers, ", ")
}

// mysqlServer tells where a MySQL DSN leads.
func mysqlServer(cfg *mysql.Config) string {
	if cfg.Net == "unix" {
		return "the socket " + cfg.Addr
	}
	return cfg.Addr
}

// serverName is a host and a port, or the path of a Unix socket.
func serverName(host string, port uint16) string {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") {
		return "the socket in " + host
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(addr, port).String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
