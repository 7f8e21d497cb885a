import { randomUUID } from 'node:crypto'
import { appendFileSync } from 'node:fs'

/** Functions for both steps: they read inputs and write the runner's commands. */

/** Returns an input without white space around it. Null when it is empty. */
export function inputOf(name) {
  const value = (process.env[`INPUT_${name.toUpperCase().replaceAll('-', '_')}`] ?? '').trim()
  return value === '' ? null : value
}

/** Returns the lines of an input that has one value per line. */
export function linesOf(name) {
  const lines = (inputOf(name) ?? '').split('\n').map((line) => line.trim())
  return lines.filter((line) => line !== '')
}

/** Sets an output of the step. The delimiter is random, so no value can contain it. */
export function setOutput(name, value) {
  append('GITHUB_OUTPUT', delimited(name, value))
}

/** Writes to the summary of the job. `html` must be escaped. */
export function writeSummary(html) {
  append('GITHUB_STEP_SUMMARY', `${html}\n`)
}

/** Escapes text from outside for the summary. The result has no Markdown and no HTML. */
export function escapeHtml(text) {
  return text.replace(/[&<>"'`\\|*_~[\]()#!@$:]/g, (character) => `&#${character.charCodeAt(0)};`)
}

/** Ends the step with an error. The runner would execute a line that begins with `::`. */
export function fail(message) {
  console.log(`::error title=Affidavit::${escapeCommand(message)}`)
  process.exit(1)
}

/** Prints text from outside, so that the runner does not execute its lines. */
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
