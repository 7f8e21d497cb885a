import { Presets, SingleBar } from 'cli-progress'
import { printable } from '#attestation/report/printable.ts'
import type { AuditReport, LogReport } from '#audit/audit-context.ts'
import type { AuditProgress } from '#audit/audit-gateway.ts'
import type { AuditCheck, AuditCheckName, AuditFinding } from '#audit/findings.ts'
import { formatChecks, hintAtRoot, jsonText } from '../printable.ts'

/** Returns true if the audit was completed and found no fault. */
export function isClean({ logs, findings }: AuditReport): boolean {
  return findings.length === 0 && logs.every((log) => log.isComplete && log.findings.length === 0)
}

export function printAuditText(report: AuditReport): string {
  const logs = report.logs.map(formatLog)
  const own = `gateway\n${formatChecks(report.checks)}${report.findings.map(formatFinding).join('')}`
  const hint = hintAtRoot(report.logs.flatMap((log) => log.findings.map(({ message }) => message)))
  return [...logs, own, `${conclude(report)}\n${hint}`].join('\n')
}

export function printAuditJson(report: AuditReport): string {
  const logs = report.logs.map((log) => ({
    notary: log.notary,
    size: log.size,
    from: log.startSize,
    to: log.endSize,
    heads: log.headCount,
    complete: log.isComplete,
    checks: log.checks.map(checkObject),
    findings: log.findings.map(findingObject),
  }))
  const checks = report.checks.map(checkObject)
  const findings = report.findings.map(findingObject)
  return jsonText({ ok: isClean(report), conclusion: conclude(report), logs, checks, findings })
}

function checkObject({ name, outcome, detail }: AuditCheck) {
  return { name, outcome, detail }
}

function findingObject({ isEarlier, ...finding }: AuditFinding) {
  return { ...finding, earlier: isEarlier }
}

function formatLog(log: LogReport): string {
  const range =
    log.startSize === 0 ? '' : `, from leaf ${log.startSize}, where the last audit ended`
  const head =
    `log ${log.notary}: ${log.endSize} of ${log.size} leaves${range}, under ${log.headCount} ` +
    'heads\n'
  return `${head}${formatChecks(log.checks)}${log.findings.map(formatFinding).join('')}`
}

function formatFinding({ code, severity, where, message, isEarlier }: AuditFinding): string {
  const earlier = isEarlier ? ' (found by an earlier run)' : ''
  return `  ! ${code} (${severity}) ${printable(where)}: ${printable(message)}${earlier}\n`
}

/** The words do not claim more than was checked. */
function conclude(report: AuditReport): string {
  const { logs } = report
  const findings = [...report.findings, ...logs.flatMap((log) => log.findings)]
  const count = (severity: AuditFinding['severity']) =>
    findings.filter((finding) => finding.severity === severity).length
  const counted = [
    [count('contradiction'), 'contradictory'],
    [count('missing'), 'missing'],
    [count('repetition'), 'made more than once'],
    [count('fault'), 'that could not be read'],
  ] as const
  const named = counted
    .filter(([number]) => number > 0)
    .map(([number, what]) => `${number} ${what}`)
  if (named.length > 0) return `FOUND: ${named.join(', ')}.`
  const own = report.checks.filter(({ outcome, isMoot }) => outcome === 'not checked' && !isMoot)
  const open = new Set([...logs.flatMap(listOpen), ...own.map(({ name }) => name)])
  const rest = open.size === 0 ? '' : ` Not checked, or only in part: ${[...open].join(', ')}.`
  return `${concludeLogs(logs)}${rest}`
}

/** A log without leaves has no faults, but there was no history to check. */
function concludeLogs(logs: readonly LogReport[]): string {
  const all = logs.length === 1 ? 'the log' : `${logs.length} logs`
  const emptyCount = logs.filter(isEmpty).length
  if (emptyCount === logs.length)
    return `NOTHING TO CHECK: ${logs.length === 1 ? 'the log is' : `all ${all} are`} empty.`
  const rest =
    emptyCount === 0 ? '' : `, of which ${emptyCount} ${emptyCount === 1 ? 'is' : 'are'} empty`
  return `CLEAN: nothing missing or contradictory was found in ${all}${rest}.`
}

/**
 * Lists the checks that were not made, except the checks that an empty log does not need. Every
 * restart of an enclave leaves a log behind, which may be empty.
 */
function listOpen(log: LogReport): readonly AuditCheckName[] {
  return log.checks
    .filter(({ outcome, isMoot }) => outcome === 'not checked' && !(isMoot && isEmpty(log)))
    .map(({ name }) => name)
}

/**
 * Returns true if the log had no leaf at the start of the audit. Other checks report such a log if
 * heads or attestations prove that leaves existed.
 */
function isEmpty({ size }: LogReport): boolean {
  return size === 0
}

/** Interval between two lines of progress, milliseconds. */
export const LINE_INTERVAL_MS = 10_000

/** Shows a progress bar on a terminal, otherwise prints lines. `now` returns milliseconds. */
export function createAuditProgress(stream: NodeJS.WriteStream, now: () => number): AuditProgress {
  return stream.isTTY === true ? createBar(stream) : createLines(stream, now)
}

function createBar(stream: NodeJS.WriteStream): AuditProgress {
  const format = '{notary} [{bar}] {percentage}% {value}/{total} leaves, {eta_formatted} to go'
  const bar = new SingleBar({ stream, format, clearOnComplete: true }, Presets.shades_classic)
  return {
    start: (notary, size) => bar.start(size, 0, { notary }),
    update: (size) => bar.update(size),
    stop: () => bar.stop(),
  }
}

function createLines(stream: NodeJS.WriteStream, now: () => number): AuditProgress {
  let log = { notary: '', size: 0 }
  let printedAtMs = now()
  return {
    start: (notary, size) => {
      log = { notary, size }
    },
    update: (size) => {
      if (now() - printedAtMs < LINE_INTERVAL_MS) return
      printedAtMs = now()
      stream.write(`${log.notary}: ${size} of ${log.size} leaves\n`)
    },
    stop: () => undefined,
  }
}
