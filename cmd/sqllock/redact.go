package main

import "regexp"

// Nothing of what a DSN says of its user is ever shown. That does not rest on finding it in
// a text, because to take a password out of "permission denied" shows which word it is: it
// rests on where texts come from. An error of reading a DSN names the rule that it breaks
// (see product), an error of connecting tells a reason of ours (see connector), and an
// argument that may be a DSN is not repeated (see app.quoted). What is left are the
// texts of servers that name the account, which redact takes out.

// mask stands for what is not shown.
const mask = "xxxxx"

var (
	userinfo  = regexp.MustCompile(`://\S*?@\S*@|://\S*?@`)
	parameter = regexp.MustCompile(`(?i)((?:pass(?:word|wd)?|user)=)('[^']*'|[^\s&]+)`)
	mysqlUser = regexp.MustCompile(`(?i)\buser '.*'@'[^']*'`)
	pgRole    = regexp.MustCompile(`(?i)\b(?:role|user) "(?:[^"]|"")*"`)
)

// redact takes accounts and passwords out of a text, by what stands around them.
func redact(text string) string {
	text = userinfo.ReplaceAllStringFunc(text, func(user string) string {
		if user == "://user@" { // see dsnForms
			return user
		}
		return "://" + mask + "@"
	})
	text = parameter.ReplaceAllString(text, "${1}"+mask)
	text = mysqlUser.ReplaceAllString(text, "this account")
	return pgRole.ReplaceAllString(text, "this account")
}
