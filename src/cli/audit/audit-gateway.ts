import { setTimeout as sleep } from 'node:timers/promises'
import { printable } from '../../../attestation/report/printable.ts'
import type { ListingVerifier } from '../../../attestation/revocation/listing-verifier.ts'
import { createRpc } from '../../chain/rpc.ts'
import { readBundlePolicy, readRevocationLists } from '../expected-evidence.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { chooseKey, type GatewayKey } from '../gateway-access.ts'
import type { BundleOptions } from '../options.ts'
import {
  type AuditReport,
  type AuditScope,
  type AuditTools,
  digestScope,
  type LogReport,
} from './audit-context.ts'
import { auditLog } from './audit-log.ts'
import {
  type AuditProgress,
  createAuditProgress,
  isClean,
  printAuditJson,
  printAuditText,
} from './audit-report.ts'
import { ChainFault, type ChainSource, openChainSource } from './chain.ts'
import { describeHead } from './compare-heads.ts'
import { type Ledger, openLedger } from './findings.ts'
import { type Gateway, openGateway, type ServedLog } from './gateway.ts'
import { GatewayFault, openGatewayHttp } from './gateway-http.ts'
import { auditContracts, auditEarlierLogs } from './hidden-logs.ts'
import { collectNamedHeads } from './known-heads.ts'
import { drawRandom } from './samples.ts'
import { type AuditState, openAuditState, type SavedLog } from './saved-state.ts'

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
  const state = await openAuditState(options.state ?? null, {
    scope: digestScope(scope),
    now: Date.now,
  })
  const interrupt = new AbortController()
  const stop = () =>
    interrupt.abort(
      new CliError('interrupted; with the same --state, the next run continues from here'),
    )
  process.once('SIGINT', stop)
  process.once('SIGTERM', stop)
  const { signal } = interrupt
  const pause = (durationMs: number) =>
    sleep(durationMs, undefined, { signal }).catch(() => signal.throwIfAborted())
  const http = openGatewayHttp({
    url,
    apiKey: key?.apiKey ?? null,
    keyHint: key?.keyHint ?? null,
    signal,
    sleep: pause,
    ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout * 1000 }),
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
      {
        notary: options.notary ?? null,
        state,
        progress: createAuditProgress(process.stderr, Date.now),
      },
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

async function readScope(
  options: AuditOptions,
  recordsLeftOut: string | null,
): Promise<AuditScope> {
  const { from = 0, to = null, rpc, anyMeasurement = false, ownRecords = false } = options
  if (to !== null && to <= from)
    throw new CliError('expected --to to be over --from', EXIT_CODES.usage)
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
      throw new CliError(
        `the chain cannot be reached: ${printable(fault.message)}`,
        EXIT_CODES.unavailable,
      )
    throw fault
  }
}

/**
 * Audits all logs of a gateway, or the one of `notary`, one after the other, newest first. A
 * gateway that does not answer as it must is a finding. Throws what the signal was aborted with,
 * and CliError when the state cannot be kept.
 */
async function runAudit(
  tools: Omit<AuditTools, 'payers' | 'named'> & { readonly verifier: ListingVerifier },
  given: {
    readonly notary: string | null
    readonly state: AuditState
    readonly progress: AuditProgress
  },
): Promise<AuditReport> {
  const { state, progress, notary } = given
  const ledger = openLedger(null)
  const { payers } = state
  const named = collectNamedHeads()
  const logs: LogReport[] = []
  // Before the logs are asked for: what the chain has by then, they must have.
  const newestBlock = await findNewestBlock(tools.chain, ledger)
  const found = await findLogs(tools.gateway, notary, ledger)
  if (notary === null && found !== null) logs.push(...(await auditMissing(found, state)))
  for (const log of found ?? []) {
    progress.start(log.notary, log.size)
    const events = {
      progress: progress.update,
      save: (saved: SavedLog) => state.save(log.notary, saved),
    }
    const saved = state.find(log.notary)
    try {
      logs.push(await auditLog(log, { ...tools, payers, named }, { saved, events }))
    } finally {
      await state.flush()
      progress.stop()
    }
  }
  if (found !== null && logs.length === 0) ledger.find('no_log', NO_LOG)
  if (found !== null) {
    const audited = {
      ...tools,
      ...{ payers, named, ledger, found, newestBlock },
      reports: logs,
      listed: new Set([...found.map((log) => log.notary), ...state.notaries()]),
      isOneLog: notary !== null,
    }
    await auditEarlierLogs(audited)
    await auditContracts(audited)
  }
  for (const { message } of tools.verifier.unused())
    ledger.find('revocation_list_unused', { where: '--crl', message })
  return { logs, checks: ledger.checks(), findings: ledger.findings() }
}

/** An audit that checked nothing found no history clean. */
const NO_LOG = { where: 'logs', message: 'the gateway lists no logs: nothing was checked' }

/** Null without a chain, or when it does not say. */
async function findNewestBlock(chain: ChainSource | null, ledger: Ledger): Promise<number | null> {
  try {
    return chain === null ? null : await chain.fetchNewestBlock()
  } catch (fault) {
    if (!(fault instanceof ChainFault)) throw fault
    ledger.find(fault.code, fault)
    ledger.skipAll('the chain did not give its newest block')
    return null
  }
}

/** Logs that an earlier run came to, and that are not there any more. */
async function auditMissing(
  found: readonly ServedLog[],
  state: AuditState,
): Promise<readonly LogReport[]> {
  const served = new Set(found.map(({ notary }) => notary))
  const reports: LogReport[] = []
  for (const notary of state.notaries()) {
    const saved = state.find(notary)
    if (saved === null || served.has(notary)) continue
    const report = reportMissingLog(notary, saved)
    await state.save(notary, { ...saved, findings: report.findings })
    reports.push(report)
  }
  await state.flush()
  return reports
}

/** Null when the gateway does not say. */
async function findLogs(
  gateway: Gateway,
  notary: string | null,
  ledger: Ledger,
): Promise<readonly ServedLog[] | null> {
  try {
    return notary === null ? await gateway.listLogs() : [await gateway.fetchLog(notary)]
  } catch (fault) {
    if (!(fault instanceof GatewayFault)) throw fault
    ledger.find(fault.code, fault)
    return null
  }
}

/**
 * Gives the report of a log that an earlier run came to, and that the gateway does not list any
 * more, with what was found of it before: nobody would miss a log that is not asked for.
 */
function reportMissingLog(notary: string, saved: SavedLog): LogReport {
  const ledger = openLedger(notary, saved.findings)
  const last = saved.head === null ? 'no head yet' : describeHead(saved.head)
  ledger.find('log_missing', {
    where: 'log',
    message: `the gateway does not list this log; the last audit found ${last} (a state file is for one gateway)`,
  })
  ledger.skipAll('the gateway does not list this log')
  const { size } = saved.edge
  return {
    ...{ notary, size, startSize: size, endSize: size, headCount: 0 },
    ...{ matched: saved.head, isComplete: false },
    ...{ checks: ledger.checks(), findings: ledger.findings() },
  }
}
