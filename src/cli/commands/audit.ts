import { setTimeout as sleep } from 'node:timers/promises'
import { type Command, InvalidArgumentError } from 'commander'
import { createRpc } from '../../chain/rpc.ts'
import { createAuditProgress, isClean, printAuditJson, printAuditText } from '../audit/audit-report.ts'
import { ChainFault, type ChainSource, openChainSource } from '../audit/chain.ts'
import { type AuditScope, digestScope } from '../audit/expectations.ts'
import { openGateway } from '../audit/gateway.ts'
import { openGatewayHttp } from '../audit/gateway-http.ts'
import { type AuditReport, runAudit } from '../audit/run-audit.ts'
import { openAuditState } from '../audit/saved-state.ts'
import { drawRandom } from '../audit/tree.ts'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import {
  addAttestationOptions,
  type BundleOptions,
  collectText,
  parseRpcUrl,
  readBundlePolicy,
  readRevocationLists,
} from '../expected-evidence.ts'
import { chooseKey, type GatewayKey } from '../gateway-key.ts'
import { parseBaseUrl, parseSeconds } from '../options.ts'
import { printable } from '../printable.ts'

type AuditOptions = Omit<BundleOptions, 'confirmations' | 'require'> & {
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

/** Adds `audit URL`, which walks the logs of a gateway as an outsider; README.md of audit/ says what it finds. */
export function registerAudit(program: Command): void {
  const command = program
    .command('audit')
    .summary("walk a gateway's whole log, and report what is missing or contradictory")
    .description(
      "Walk a gateway's logs as an outsider: every head signed, growing and over the leaves that are served; with --rpc every anchor on the chain, every head there served, and no log there hidden; with a key every record against its leaf.",
    )
    .argument('<url>', "the gateway's base URL", parseBaseUrl)
    .option('--notary <address>', 'this log alone', parseNotary)
    .option('--rpc <url>', 'JSON-RPC endpoint of the chain', parseRpcUrl)
    .option(
      '--from <leaf>',
      'look at records and anchors from this leaf on; leaf hashes are read from the first',
      parseCount,
    )
    .option('--to <leaves>', 'end at the first head of at least so many leaves', parseCount)
    .option('--from-block <number>', 'first block to look for heads in', parseCount)
    .option(
      '--key <key>',
      'API key, to check records too (better: in AFFIDAVIT_API_KEY, which goes to AFFIDAVIT_URL alone)',
    )
    .option('--no-records', 'do not check records, even with a key')
    .option('--own-records', 'the key sees its own records alone: do not report others as missing')
    .option('--state <file>', 'keep there how far the audit is, and go on from it')
    .option('--timeout <seconds>', 'longest that one answer may take (default: 60)', parseSeconds)
    .option('--json', 'print one JSON object')
    .option(
      '--configuration <digest|file>',
      'expected boot configuration, never from the gateway; may be repeated',
      collectText,
    )
  addAttestationOptions(command)
    .addHelpText(
      'after',
      '\nThe conclusion CLEAN is of logs that have leaves; of empty ones alone it is NOTHING TO CHECK.' +
        '\nExit codes: 0 nothing found (also in empty logs), 1 something missing, contradictory or unreadable, 2 usage.',
    )
    .action(async (url: string, options: AuditOptions) => {
      const report = await audit(url, options)
      process.stdout.write(options.json ? printAuditJson(report) : printAuditText(report))
      process.exitCode = isClean(report) ? EXIT_CODES.done : EXIT_CODES.failed
    })
}

async function audit(url: string, options: AuditOptions): Promise<AuditReport> {
  const key = options.records ? chooseKey(url, options) : null
  const scope = await readScope(options, explainNoRecords(key))
  const lists = await readRevocationLists(options, Date.now())
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
        lists,
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

function parseNotary(text: string): string {
  if (!/^0x[0-9a-fA-F]{40}$/.test(text))
    throw new InvalidArgumentError('expected an address: 0x and 40 hex digits')
  return text.toLowerCase()
}

function parseCount(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('expected a whole number')
  return Number(text)
}
