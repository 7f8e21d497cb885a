import { spawnSync } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  escapeHtml,
  fail,
  inputOf,
  linesOf,
  printUntrusted,
  setOutput,
  writeSummary,
} from './runner.mjs'

/*
 * Second step: runs the program with the values of the inputs, without a shell, and reports the
 * result. Each value follows its option (--option=value) or `--`, so the program never reads a
 * value as an option.
 */

const REPORT_BYTES_MAX = 64 * 1024 * 1024
const ROWS_MAX = 200

const bundle = inputOf('bundle')
const url = inputOf('url')
if (bundle === null && url === null) fail('expected one of the inputs bundle and url')
if (bundle === '-') fail('bundle: expected a file, a URL or a hash: nothing is on standard input')
const required = inputOf('require') ?? 'verified'
if (!['verified', 'incomplete'].includes(required)) fail('require: expected verified or incomplete')
const isAudit = bundle === null
for (const name of ['confirmations', 'allow-outcome', 'request', 'answer'])
  if (isAudit && inputOf(name) !== null) fail(`${name}: expected a bundle with it`)

const words = isAudit
  ? ['audit', '--json', ...expected(), '--', url]
  : ['verify', '--json', ...expected(), ...ofBundle(), '--', bundle]
const { stdout, stderr, status, error } = spawnSync(process.env.AFFIDAVIT_PROGRAM ?? '', words, {
  env: environment(),
  stdio: ['ignore', 'pipe', 'pipe'],
  encoding: 'utf8',
  maxBuffer: REPORT_BYTES_MAX,
  timeout: minutes() * 60_000,
  killSignal: 'SIGKILL',
})
const folder = mkdtempSync(join(process.env.RUNNER_TEMP ?? tmpdir(), 'affidavit-report-'))
const place = join(folder, 'report.json')
writeFileSync(place, stdout ?? '')
printUntrusted(`${stderr ?? ''}${stdout ?? ''}`)

const report = readReport(stdout ?? '')
const verdict = report === null ? 'failed' : verdictOf(report)
setOutput('verdict', verdict)
setOutput('report', place)
summarize()
if (report === null) fail(`no report: ${reasonOf()}`)
if (status !== 0 && !isAcceptedAsIncomplete()) fail(conclusionOf(report))
if (isAudit ? verdict === 'found' : !isEnough()) fail(conclusionOf(report))

/** Options for both commands. */
function expected() {
  return [
    ...one('policy'),
    ...each('release'),
    ...each('release-key'),
    ...one('release-signers'),
    ...each('pcr'),
    ...each('configuration'),
    ...each('root'),
    ...each('crl'),
    ...one('rpc'),
  ]
}

function ofBundle() {
  return [
    ...one('url'),
    ...one('confirmations'),
    ...one('allow-outcome'),
    ...one('request'),
    ...one('answer'),
  ]
}

function each(name) {
  return linesOf(name).map((value) => `--${name}=${value}`)
}

function one(name) {
  const value = inputOf(name)
  return value === null ? [] : [`--${name}=${value}`]
}

/** The key is passed in the environment. It is sent only to the origin of the URL that it belongs to. */
function environment() {
  const { AFFIDAVIT_API_KEY: _, AFFIDAVIT_URL: __, ...rest } = process.env
  const inherited = Object.entries(rest).filter(([name]) => !name.startsWith('INPUT_'))
  const key = inputOf('api-key')
  if (key !== null && url === null) fail('api-key: expected the url that it is for')
  return {
    ...Object.fromEntries(inherited),
    ...(url === null ? {} : { AFFIDAVIT_URL: url }),
    ...(key === null ? {} : { AFFIDAVIT_API_KEY: key }),
  }
}

function minutes() {
  const text = inputOf('timeout-minutes') ?? '30'
  const count = /^\d{1,3}$/.test(text) ? Number(text) : 0
  if (count < 1 || count > 360) fail('timeout-minutes: expected a whole number from 1 to 360')
  return count
}

function readReport(text) {
  try {
    const value = JSON.parse(text)
    return typeof value?.conclusion === 'string' ? value : null
  } catch {
    return null
  }
}

/** Returns one of a few fixed words, because the report's text is not trusted. */
function verdictOf({ bundle: ofOne, verdict: ofRecords, conclusion }) {
  if (isAudit)
    return conclusion.startsWith('CLEAN:')
      ? 'clean'
      : conclusion.startsWith('NOTHING TO CHECK:')
        ? 'empty'
        : 'found'
  const found = ofOne?.verdict ?? ofRecords
  return ['verified', 'incomplete', 'not_accepted'].includes(found) ? found : 'invalid'
}

/** The program's status is 3 for incomplete evidence, and for a chain that was not reached. */
function isAcceptedAsIncomplete() {
  if (isAudit || status !== 3 || verdict !== 'incomplete' || !isEnough()) return false
  const isOnChain = ({ name, outcome }) => name === 'block on chain' && outcome === 'passed'
  return inputOf('rpc') === null || report.bundle?.checks?.some(isOnChain) === true
}

function isEnough() {
  return verdict === 'verified' || (verdict === 'incomplete' && required === 'incomplete')
}

function conclusionOf({ conclusion }) {
  const least = !isAudit && verdict === 'incomplete' && required === 'verified'
  return least ? `${conclusion} (require is verified)` : conclusion
}

function reasonOf() {
  if (error !== undefined) return error.message
  return (stderr ?? '').trim().split('\n')[0] || `exit code ${status}`
}

function summarize() {
  const title = isAudit ? 'Audit' : 'Evidence'
  const conclusion = report === null ? reasonOf() : conclusionOf(report)
  const rows = checksOf(report).slice(0, ROWS_MAX)
  writeSummary(
    `### ${title}: ${verdict}\n\n<p>${escapeHtml(conclusion.replaceAll('\n', ' '))}</p>\n`,
  )
  if (rows.length === 0) return
  const cell = (text) =>
    `<td>${escapeHtml(String(text).replaceAll(/\s+/g, ' ').slice(0, 500))}</td>`
  const body = rows.map(
    ({ name, outcome, detail }) => `<tr>${cell(outcome)}${cell(name)}${cell(detail ?? '')}</tr>`,
  )
  writeSummary(
    `<table><tr><th>Outcome</th><th>Check</th><th>Detail</th></tr>${body.join('')}</table>\n`,
  )
}

/** Returns the checks of a report in any of its forms. */
function checksOf(value) {
  if (value === null) return []
  const groups = [
    value.bundle?.checks,
    value.bundle?.exchange?.checks,
    value.session?.checks,
    ...listOf(value.session?.calls).map(({ failed }) => failed),
    ...listOf(value.records).map(({ checks }) => checks),
    value.checks,
    ...listOf(value.logs).map(({ checks }) => checks),
  ]
  return groups.flatMap(listOf)
}

function listOf(value) {
  return Array.isArray(value) ? value : []
}
