import { setTimeout as sleep } from 'node:timers/promises'
import { createRpc } from '../../chain/rpc.ts'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import { readBundlePolicy, readRevocationLists } from '../expected-evidence.ts'
import { chooseKey, type GatewayKey } from '../gateway-access.ts'
import type { BundleOptions } from '../options.ts'
import { printable } from '../printable.ts'
import { createAuditProgress, isClean, printAuditJson, printAuditText } from './audit-report.ts'
import { ChainFault, type ChainSource, openChainSource } from './chain.ts'
import { type AuditScope, digestScope } from './expectations.ts'
import { openGateway } from './gateway.ts'
import { openGatewayHttp } from './gateway-http.ts'
import { type AuditReport, runAudit } from './run-audit.ts'
import { openAuditState } from './saved-state.ts'
import { drawRandom } from './tree.ts'

/** What the options say, as commander gives it. */
export type AuditOptions = Omit<BundleOptions, 'confirmations' | 'require'> & {
  readonly notary?: string
  readonly from?: number
  readonly to?: number
  readonly fromBlock?: number
  readonly key?: string
  readonly records: boolean
  readonly ownRecords?: boolean
  readonly state?: string
  readonly timeout?: number
  readonly json?: boolean
}

/** Audits the gateway at `url` as the options say, and gives the report. Throws CliError. */
export async function auditGateway(
  url: string,
  options: AuditOptions,
): Promise<{ readonly output: string; readonly isClean: boolean }> {
  const report = await audit(url, options)
  const output = options.json ? printAuditJson(report) : printAuditText(report)
  return { output, isClean: isClean(report) }
}

async function audit(url: string, options: AuditOptions): Promise<AuditReport> {
  const key = options.records ? chooseKey(url, options) : null
  const scope = await readScope(options, explainNoRecords(key))
  const openVerifier = await readRevocationLists(options, Date.now())
  const state = await openAuditState(options.state ?? null, { scope: digestScope(scope), now: Date.now })
  const interrupt = new AbortController()
  const stop = () =>
    interrupt.abort(new CliError('interrupted; with the same --state, the next run goes on from here'))
  process.once('SIGINT', stop)
  process.once('SIGTERM', stop)
  const { signal } = interrupt
  const pause = (durationMs: number) =>
    sleep(durationMs, undefined, { signal }).catch(() => signal.throwIfAborted())
  const timeoutMs = options.timeout === undefined ? {} : { timeoutMs: options.timeout * 1000 }
  const http = openGatewayHttp({
    url,
    apiKey: key?.apiKey ?? null,
    keyHint: key?.keyHint ?? null,
    signal,
    sleep: pause,
    ...timeoutMs,
  })
  const chain = await openChain(options.rpc, { sleep: pause, signal })
  try {
    return await runAudit(
      {
        gateway: openGateway(http),
        chain: chain.source,
        scope,
        verifier: openVerifier({ isOfOne: false }),
        fromBlock: options.fromBlock ?? 0,
        random: drawRandom,
        nowMs: Date.now(),
      },
      { notary: options.notary ?? null, state, progress: createAuditProgress(process.stderr, Date.now) },
    )
  } finally {
    process.off('SIGINT', stop)
    process.off('SIGTERM', stop)
    await http.close()
    await chain.close()
  }
}

/** Null when they are looked at. */
function explainNoRecords(key: GatewayKey | null): string | null {
  if (key === null) return 'they were left out (--no-records)'
  if (key.apiKey !== null) return null
  return key.isWithheld ? `no key was sent: ${key.keyHint}` : `no key was given (${key.keyHint})`
}

async function readScope(options: AuditOptions, recordsLeftOut: string | null): Promise<AuditScope> {
  const { from = 0, to = null, rpc, anyMeasurement = false, ownRecords = false } = options
  if (to !== null && to <= from) throw new CliError('expected --to to be over --from', EXIT_CODES.usage)
  return {
    from,
    to,
    policy: await readBundlePolicy(options),
    acceptsAnyCode: anyMeasurement,
    hasChain: rpc !== undefined,
    recordsLeftOut,
    ownRecordsOnly: ownRecords,
  }
}

async function openChain(
  url: string | undefined,
  given: { readonly sleep: (durationMs: number) => Promise<void>; readonly signal: AbortSignal },
): Promise<{ readonly source: ChainSource | null; close(): Promise<void> }> {
  if (url === undefined) return { source: null, close: async () => undefined }
  const rpc = createRpc({ url })
  try {
    return { source: await openChainSource(rpc, given), close: () => rpc.close() }
  } catch (fault) {
    await rpc.close()
    if (fault instanceof ChainFault)
      throw new CliError(`the chain cannot be asked: ${printable(fault.message)}`)
    throw fault
  }
}
