import { setTimeout as sleep } from 'node:timers/promises'
import { printable } from '#attestation/report/printable.ts'
import { type AuditReport, type AuditScope, digestScope } from '#audit/audit-context.ts'
import { auditGateway } from '#audit/audit-gateway.ts'
import { ChainFault, type ChainSource, openChainSource } from '#audit/chain.ts'
import { openGateway } from '#audit/gateway.ts'
import { type GatewayHttp, openGatewayHttp } from '#audit/gateway-http.ts'
import { drawRandom } from '#audit/samples.ts'
import { UnsafeKey } from '#client/gateway.ts'
import { createRpc } from '#client/rpc.ts'
import { recoverPoint } from '#enclave/protocol/recover-point.ts'
import { readBundlePolicy, readRevocationLists } from '../expected-evidence.ts'
import { CliError, convertFault, EXIT_CODES } from '../faults.ts'
import { chooseKey, type GatewayKey } from '../gateway-access.ts'
import type { BundleOptions } from '../options.ts'
import { createAuditProgress, isClean, printAuditJson, printAuditText } from './audit-report.ts'
import { openStateFile } from './state-file.ts'

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

/** Throws CliError. */
export async function runAudit(
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
  const state = await openStateFile(options.state ?? null, digestScope(scope))
  const interrupt = new AbortController()
  const stop = () =>
    interrupt.abort(
      new CliError('interrupted; with the same --state, the next run continues from here'),
    )
  process.once('SIGINT', stop)
  process.once('SIGTERM', stop)
  const { signal } = interrupt
  const waiting: Waiting = {
    signal,
    sleep: (durationMs) =>
      sleep(durationMs, undefined, { signal }).catch(() => signal.throwIfAborted()),
  }
  try {
    return await auditGateway(
      {
        gateway: openGateway(openHttp(url, key, { ...waiting, timeout: options.timeout })),
        chain: await openChain(options.rpc, waiting),
        scope,
        verifier: openVerifier({ isOfOne: false }),
        recover: recoverPoint,
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
  }
}

type Waiting = {
  readonly signal: AbortSignal
  readonly sleep: (durationMs: number) => Promise<void>
}

function openHttp(
  url: string,
  key: GatewayKey | null,
  { timeout, ...waiting }: Waiting & { readonly timeout: number | undefined },
): GatewayHttp {
  const open = () =>
    openGatewayHttp({
      url,
      apiKey: key?.apiKey ?? null,
      keyHint: key?.keyHint ?? null,
      ...waiting,
      timeoutMs: timeout && timeout * 1000,
    })
  return convertFault(open, UnsafeKey, ({ message }) => new CliError(message, EXIT_CODES.usage))
}

/** Returns why records are not checked. Null if records are checked. */
function explainNoRecords(key: GatewayKey | null): string | null {
  if (key === null) return 'they were left out (--no-records)'
  if (key.apiKey !== null) return null
  return key.isWithheld ? `no key was sent: ${key.keyHint}` : `no key was given (${key.keyHint})`
}

async function readScope(
  options: AuditOptions,
  recordsLeftOut: string | null,
): Promise<AuditScope> {
  const {
    from = 0,
    to = null,
    rpc,
    fromBlock = 0,
    anyMeasurement = false,
    ownRecords = false,
  } = options
  if (to !== null && to <= from)
    throw new CliError('expected --to to be over --from', EXIT_CODES.usage)
  return {
    from,
    to,
    policy: await readBundlePolicy(options),
    acceptsAnyCode: anyMeasurement,
    hasChain: rpc !== undefined,
    fromBlock,
    recordsLeftOut,
    ownRecordsOnly: ownRecords,
  }
}

async function openChain(url: string | undefined, waiting: Waiting): Promise<ChainSource | null> {
  if (url === undefined) return null
  return await openChainSource(createRpc({ url }), waiting).catch((fault: unknown) => {
    if (!(fault instanceof ChainFault)) throw fault
    throw new CliError(
      `the chain cannot be reached: ${printable(fault.message)}`,
      EXIT_CODES.unavailable,
    )
  })
}
