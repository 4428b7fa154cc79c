package peerserver

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"time"
)

// talk sends words to a server and returns its whole answer.
func talk(addr, words string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, words); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(bufio.NewReader(conn))
	return string(answer), err
}

func get(url string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second}
	r, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

func field(text, pattern string) string {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "unknown"
}
