package main

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// mask stands for a password.
const mask = "xxxxx"

var (
	userinfo  = regexp.MustCompile(`://([^:/@\s]*):\S*@`)
	parameter = regexp.MustCompile(`(?i)(pass(?:word|wd)?=)('[^']*'|[^\s&]+)`)
)

// redact takes what looks like a password out of a text.
func redact(text string) string {
	text = userinfo.ReplaceAllString(text, "://$1:"+mask+"@")
	return parameter.ReplaceAllString(text, "${1}"+mask)
}

// redactSecrets also takes out the passwords of a DSN, in any place. It is for
// errors of parsers, which quote from the middle of what they cannot read. Those
// of servers never have the password, but may well have a user's name that is
// the same word.
func redactSecrets(text, dsn string) string {
	for _, s := range secrets(dsn) {
		text = strings.ReplaceAll(text, s, mask)
	}
	return redact(text)
}

// secrets returns what may be a password in a DSN, longest first, raw and
// decoded. A DSN that has reserved characters in its password can be read in
// more than one way.
func secrets(dsn string) []string {
	var found []string
	add := func(s string) {
		found = append(found, s)
		if decoded, err := url.PathUnescape(s); err == nil {
			found = append(found, decoded)
		}
	}
	_, rest, _ := strings.Cut(dsn, "://")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			add(password)
			first, _, _ := strings.Cut(password, "@")
			add(first)
		}
	}
	for _, pair := range parameter.FindAllString(rest, -1) {
		_, value, _ := strings.Cut(pair, "=")
		add(value)
	}
	found = slices.DeleteFunc(found, func(s string) bool { return s == "" })
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	return found
}
