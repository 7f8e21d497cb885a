import { randomUUID } from 'node:crypto'
import { appendFileSync } from 'node:fs'

/**
 * What the two steps share: how they read inputs, and how they tell the runner something.
 */

/** An input as it was given, without white space around it; null when it is empty. */
export function inputOf(name) {
  const value = (process.env[`INPUT_${name.toUpperCase().replaceAll('-', '_')}`] ?? '').trim()
  return value === '' ? null : value
}

/** The lines of an input that has one value a line. */
export function linesOf(name) {
  const lines = (inputOf(name) ?? '').split('\n').map((line) => line.trim())
  return lines.filter((line) => line !== '')
}

/** Sets an output of the step. The delimiter is new each time: no value can end itself early. */
export function setOutput(name, value) {
  append('GITHUB_OUTPUT', delimited(name, value))
}

/** Writes to the summary of the job. `html` is escaped already. */
export function writeSummary(html) {
  append('GITHUB_STEP_SUMMARY', `${html}\n`)
}

/** Text from outside, for the summary: none of it is Markdown or HTML any more. */
export function escapeHtml(text) {
  return text.replace(/[&<>"'`\\|*_~[\]()#!@$:]/g, (character) => `&#${character.charCodeAt(0)};`)
}

/** Ends the step with an error. A line that begins with `::` would be a command to the runner. */
export function fail(message) {
  console.log(`::error title=Affidavit::${escapeCommand(message)}`)
  process.exit(1)
}

/** Lets lines of text that come from outside be no commands to the runner. */
export function printUntrusted(text) {
  const token = randomUUID()
  process.stdout.write(`::stop-commands::${token}\n${text}\n::${token}::\n`)
}

function escapeCommand(text) {
  return text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A')
}

function delimited(name, value) {
  const end = `end-${randomUUID()}`
  return `${name}<<${end}\n${value}\n${end}\n`
}

function append(variable, text) {
  const path = process.env[variable]
  if (path !== undefined && path !== '') appendFileSync(path, text)
}
