//go:build !unix

package sqllocktest

const hasSignals = false

func (p *process) pause() { panic("bug: needSignals") }

func (p *process) resume() { panic("bug: needSignals") }

func pauseSelf() { panic("bug: needSignals") }
