import { cpus, totalmem } from 'node:os'
import type { CallOutcome } from '../support/deployment/callers.ts'
import { ENCLAVE_LIMITS } from '../support/deployment/deployment.ts'
import type { Fault } from './faults.ts'
import { LOAD, type Measurement } from './measure.ts'

/**
 * The text of deploy/FAULTS.md, with a row for each fault that was measured now, or else is in
 * `before`, its text until now.
 */
export function writeTable(
  measured: readonly Measurement[],
  { faults, before }: { readonly faults: readonly Fault[]; readonly before: string },
): string {
  const known = before.split('\n')
  const rowOf = (fault: Fault) => {
    const now = measured.find((one) => one.fault === fault)
    return now === undefined
      ? known.find((line) => line.startsWith(`| ${titleOf(fault)} | `))
      : writeRow(now)
  }
  const rows = faults.map(rowOf).filter((row) => row !== undefined)
  const missing = faults.filter((fault) => rowOf(fault) === undefined)
  const day = new Date().toISOString().slice(0, 10)
  return `# Faults: what happens when a part fails

Written by \`npm run faults\`, which makes each fault under load and measures it; nothing here is written by hand. Run on ${day}: ${cpus().length} cores,
${Math.round(totalmem() / 2 ** 30)} GiB, Node.js ${process.version}, everything on one machine, which did other work too.

- **Set-up**: gateways, enclaves with a simulated security module, Postgres, a chain (anvil), a provider and node agents, each a process or a server of its own. All
  calls, /readyz and metrics are of one gateway of two, but for rows of \`one of two\` gateways, where calls go through a reverse proxy.
- **Load**: each ${LOAD.intervalMs} ms a verified call, a verified stream, one with an Idempotency-Key (repeated until it is answered), an encrypted call and stream through the client that
  checks, a plain call and a plain stream, by the official \`openai\` package without retries. A caller gives up after ${LOAD.timeoutMs / 1000} s.
- **Limits of the enclaves**: ${Object.entries(ENCLAVE_LIMITS)
    .map(([name, value]) => `${name}=${value}`)
    .join(', ')}; all other settings are the defaults.
- **Callers**: what calls ended in that were under way or began during the fault. \`retry\`: the official SDKs would repeat it. \`in the stream\`: as an error event. \`cut\`: the connection broke.
- **/readyz**, **metrics**: what was said that was not said before, after how long; what /readyz says otherwise is 200.
- **Lost**: of all completions that callers hold with proof, how many are not in the history, do not verify, or are on no block of the chain afterwards.
- **Row \`memory\`**: the callers and the provider of these large bodies have the same cores as the service; how long things take there is the machine's doing as well.
- **Recovery**: begin of the last call that failed, of those that began after the fault's end; and when /readyz said 200 again.

| fault | how, and for how long | verified and encrypted calls | plain calls | longest call | /readyz | metrics | lost | recovery |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
${rows.join('\n')}
${missing.length === 0 ? '' : `\nNot run here: ${missing.map(titleOf).join(', ')} (they need a file system that can be mounted, or a nats-server).\n`}
The clock of a process is shifted inside of it (\`test/support/deployment/shifted-clock.ts\`): timers and the monotonic clock go on, as when a real clock is set; what native code
reads of the clock (certificates in TLS) is not shifted, nor is the clock of Postgres.
`
}

const titleOf = ({ part, name }: Fault) => `${part} ${name}`

function writeRow({
  fault,
  heldMs,
  during,
  readyz,
  readyAfterMs,
  metrics,
  lost,
  proven,
  recoveredAfterMs,
  exits,
}: Measurement): string {
  const isPlain = ({ kind }: CallOutcome) => kind.startsWith('plain')
  const longestMs = Math.max(0, ...during.map((call) => call.endedMs - call.beganMs))
  const recovery = Number.isFinite(recoveredAfterMs)
    ? recoveredAfterMs === 0
      ? 'at once'
      : seconds(recoveredAfterMs)
    : `**none in ${seconds(LOAD.recoveryMs)}**`
  const cells = [
    titleOf(fault),
    `${fault.how}; ${seconds(heldMs)}`,
    describeCalls(during.filter((call) => !isPlain(call))),
    describeCalls(during.filter(isPlain)),
    seconds(longestMs),
    readyz.length === 0
      ? 'no change'
      : readyz.map(({ said, afterMs }) => `${said} after ${seconds(afterMs)}`).join('; '),
    describeMetrics(metrics),
    lost.length === 0 ? `0 of ${proven}` : `**${lost.length} of ${proven}**`,
    recovery +
      (readyAfterMs === null ? '' : `; /readyz ${seconds(readyAfterMs)}`) +
      (exits === 0 ? '' : `; the process exited ${exits} times`),
  ]
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
}

function describeCalls(calls: readonly CallOutcome[]): string {
  const byOutcome = Map.groupBy(calls, nameOutcome)
  const known = [...byOutcome].toSorted(([, one], [, other]) => other.length - one.length)
  return known.map(([name, all]) => `${all.length} × ${name}`).join('; ')
}

function nameOutcome({ status, code, isRetryable }: CallOutcome): string {
  if (code === 'ok') return 'answered'
  if (status === 200) return `\`${code}\` in the stream`
  if (code === 'timeout') return '**no answer in time**'
  const shown = status === null ? code : `${status} \`${code}\``
  return `${shown}${isRetryable ? ' (retry)' : ''}`
}

const METRICS_SHOWN = 3

/** Metrics of calls come last: they show failed calls for every fault. */
function describeMetrics(metrics: Measurement['metrics']): string {
  if (metrics.length === 0) return 'none'
  const rank = ({ name }: { readonly name: string }) => (/call(s|_errors)_total/.test(name) ? 1 : 0)
  const shown = metrics
    .toSorted((one, other) => rank(one) - rank(other) || one.afterMs - other.afterMs)
    .slice(0, METRICS_SHOWN)
  return shown.map(({ name, afterMs }) => `\`${name}\` after ${seconds(afterMs)}`).join('; ')
}

function seconds(ms: number): string {
  return ms < 950
    ? `${Math.round(ms / 10) * 10} ms`
    : `${(ms / 1000).toFixed(ms < 9_950 ? 1 : 0)} s`
}
