import { encodeHex, equalBytes } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { decodeAnchorCall } from '#attestation/evidence/anchor-transaction.ts'
import { FUTURE_SKEW_MS_DEFAULT } from '#attestation/nitro/policy.ts'
import { orNull } from '#attestation/or-null.ts'
import { isoOf } from '#attestation/report/printable.ts'
import type { TreeHead } from '#attestation/tree-head.ts'
import type { LogContext } from './audit-context.ts'
import {
  type AnchorEvent,
  type ChainAnchor,
  type ChainReceipt,
  type ChainSource,
  decodeAnchorEvent,
} from './chain.ts'
import { isConsistent, reportEquivocation } from './compare-heads.ts'
import type { Ledger } from './findings.ts'
import type { ServedHead, ServedLog } from './gateway.ts'
import type { Blocks, SavedLog } from './saved-state.ts'

/** If a head waits longer for its anchor, this is a finding. Chains take minutes. */
const ANCHOR_WAIT_MAX_MS = 60 * 60 * 1000

/** Maximum number of waiting heads that the next run checks again. */
const WAITING_MAX = 10_000

/** Maximum number of heads in one batch. Each head takes two calls to the chain. */
const BATCH_HEADS_MAX = 50

export type AnchorAudit = ReturnType<typeof createAnchorAudit>

type AttestedAt = (size: number) => number | null

/** Without a chain, only the gateway's statements about anchors are checked. */
export function createAnchorAudit({ log, ledger, chain, payers, nowMs }: LogContext) {
  const waiting: ServedHead[] = []

  /**
   * Uses the attested time if it is earlier than the gateway's time, because the gateway can state
   * a false time.
   */
  function wait(head: ServedHead, attestedAtMs: AttestedAt): void {
    const where = headOf(head)
    const { txHash } = head.anchor
    const saidMs = head.createdAt * 1000
    const waitedMs = nowMs - Math.min(saidMs, attestedAtMs(head.size) ?? saidMs)
    if (waitedMs > ANCHOR_WAIT_MAX_MS)
      ledger.find('anchor_overdue', {
        where,
        message: `transaction ${txHash} is in no block after ${Math.floor(waitedMs / 60_000)} minutes`,
      })
    else if (waitedMs < -FUTURE_SKEW_MS_DEFAULT)
      ledger.find('anchor_overdue', {
        where,
        message:
          `transaction ${txHash} is in no block, and the time that the gateway gives for the ` +
          `head is in the future, ${isoOf(saidMs)}`,
      })
    else
      ledger.skip(
        'anchors on chain',
        "heads of the last hour, by the gateway's times, wait for their anchor",
      )
    if (waiting.length < WAITING_MAX) waiting.push(head)
  }

  function judge(
    head: ServedHead,
    { found, newestBlock }: { readonly found: ChainAnchor | null; readonly newestBlock: number },
    attestedAtMs: AttestedAt,
  ): void {
    const where = headOf(head)
    const { txHash, state } = head.anchor
    const receipt = found?.receipt ?? null
    if (found === null || receipt === null) {
      const described = found === null ? 'the chain does not have' : 'no block has'
      if (canBeLate(head, newestBlock)) wait(head, attestedAtMs)
      else
        ledger.find('anchor_missing', {
          where,
          message: `the gateway says ${state}, but ${described} transaction ${txHash}`,
        })
      return
    }
    payers.record({ address: found.from, nonce: found.nonce })
    const faults = compareAnchor(head, { ...found, receipt }, log)
    if (receipt.status !== 1)
      ledger.find('anchor_reverted', {
        where,
        message: `transaction ${txHash} failed in block ${receipt.blockNumber}`,
      })
    else if (faults.length > 0)
      ledger.find('anchor_mismatch', {
        where,
        message: `transaction ${txHash} ${faults.join('; ')}`,
      })
    else ledger.pass('anchors on chain')
  }

  /** Without a chain, only the gateway itself reports the states of anchors. */
  function judgeUnasked(head: ServedHead, attestedAtMs: AttestedAt): void {
    if (head.anchor.state === 'pending') wait(head, attestedAtMs)
    if (head.anchor.state === 'reverted')
      ledger.find('anchor_reverted', { where: headOf(head), message: 'the gateway itself says so' })
  }

  return {
    /** Heads whose anchor is not in a block yet. */
    waiting: (): readonly ServedHead[] => waiting,
    /**
     * `attestedAtMs`: when the enclave attested a log of this size, Unix milliseconds. Null if
     * unknown.
     */
    async check(
      heads: readonly ServedHead[],
      attestedAtMs: AttestedAt = () => null,
    ): Promise<void> {
      for (let start = 0; start < heads.length; start += BATCH_HEADS_MAX) {
        const part = heads.slice(start, start + BATCH_HEADS_MAX)
        if (chain === null) for (const head of part) judgeUnasked(head, attestedAtMs)
        else {
          // Read before the anchors, so the endpoint had these blocks when it gave the anchors.
          const newestBlock = await chain.fetchNewestBlock()
          const found = await chain.fetchAnchors(part.map(({ anchor }) => anchor.txHash))
          for (const [at, head] of part.entries())
            judge(head, { found: found[at] ?? null, newestBlock }, attestedAtMs)
        }
      }
    },
  }
}

/**
 * Returns true if an honest gateway can serve this head while the endpoint has no receipt: the
 * anchor waits for a block, a reorganisation removed its block, or the endpoint lags behind.
 */
function canBeLate({ anchor: { state, blockNumber } }: ServedHead, newestBlock: number): boolean {
  if (state === 'pending' || state === 'mined') return true
  return state === 'confirmed' && blockNumber !== null && blockNumber > newestBlock
}

function compareAnchor(
  head: ServedHead,
  { receipt, input, to }: ChainAnchor & { readonly receipt: ChainReceipt },
  log: ServedLog,
): readonly string[] {
  const { contract } = log.domain
  const call = orNull(() => decodeAnchorCall(input), FormatError)
  const isCall =
    call !== null &&
    call.size === head.size &&
    equalBytes(call.root, head.root) &&
    equalBytes(call.signature, head.signature)
  const hasEvent = receipt.logs.some((entry) => {
    const event = decodeAnchorEvent(entry)
    return (
      event?.kind === 'anchored' &&
      event.address === contract &&
      event.notary === log.notary &&
      event.size === head.size &&
      equalBytes(event.root, head.root)
    )
  })
  const { state, blockHash, blockNumber } = head.anchor
  // The block of an anchor can change until the anchor is confirmed.
  const isInBlock =
    state !== 'confirmed' ||
    (blockHash === receipt.blockHash && blockNumber === receipt.blockNumber)
  return [
    ...(to === contract ? [] : [`calls ${to ?? 'no account'} instead of ${contract}`]),
    ...(isCall
      ? []
      : [`does not bring this head (root ${encodeHex(head.root)}) with its signature`]),
    ...(hasEvent ? [] : ['does not have the event of the contract for this head']),
    ...(isInBlock
      ? []
      : [`is in block ${receipt.blockNumber}, ${receipt.blockHash}, not where the gateway says`]),
  ]
}

function headOf({ size }: ServedHead): string {
  return `head ${size}`
}

/**
 * Returns the waiting heads with their current anchors: a block can have the transaction by now, or
 * the gateway replaced the transaction. An answer counts only if the head's root and signature are
 * unchanged. Throws GatewayFault.
 */
export async function refreshWaiting(
  heads: readonly ServedHead[],
  { gateway, log }: LogContext,
): Promise<readonly ServedHead[]> {
  const refreshed: ServedHead[] = []
  for (const head of heads) {
    const served = await gateway.fetchHead(log.notary, head.size)
    refreshed.push(
      served !== null && isSameHead(served, head) ? { ...head, anchor: served.anchor } : head,
    )
  }
  return refreshed
}

/**
 * Compares all transactions of the two anchors: after a reorganisation, a block can have an earlier
 * transaction instead of its replacement.
 */
function isSameHead(served: ServedHead, known: ServedHead): boolean {
  const knownHashes = [known.anchor.txHash, ...known.anchor.replaces]
  return (
    equalBytes(served.root, known.root) &&
    equalBytes(served.signature, known.signature) &&
    [served.anchor.txHash, ...served.anchor.replaces].some((hash) => knownHashes.includes(hash))
  )
}

/** Maximum number of heads that are looked up because the audit did not read them. */
const LOOKUPS_MAX = 1_000

/** The next run reads this many blocks again: a reorganisation may replace the newest blocks. */
const REORGANISED_BLOCKS_MAX = 100

type EventsContext = LogContext & { readonly chain: ChainSource }

/**
 * Checks that the gateway serves each head that the contract accepted from the notary. Reads the
 * blocks since the last run, then blocks whose events earlier runs skipped. Returns the part of the
 * state for the next run. Throws ChainFault, GatewayFault.
 */
export async function auditEvents(
  context: EventsContext,
  newest: TreeHead | null,
  { eventBlock, skippedBlocks = null }: Pick<SavedLog, 'eventBlock' | 'skippedBlocks'>,
): Promise<Pick<SavedLog, 'eventBlock' | 'skippedBlocks'>> {
  const toBlock = await context.chain.fetchNewestBlock()
  const from = Math.max(context.scope.fromBlock, (eventBlock ?? 0) - REORGANISED_BLOCKS_MAX)
  const late = await auditBlocks({ from, to: toBlock }, newest, context)
  const early =
    skippedBlocks === null
      ? null
      : await auditBlocks(
          { from: skippedBlocks.from, to: Math.min(skippedBlocks.to, from - 1) },
          newest,
          context,
        )
  const skipped = early === null ? late : { from: early.from, to: (late ?? early).to }
  return { eventBlock: toBlock, skippedBlocks: skipped }
}

/**
 * Returns the blocks from the first skipped event on, or null. The contract can have an old head
 * twice, because anyone may send the head again. Such copies cost one look-up.
 */
async function auditBlocks(
  { from, to }: Blocks,
  newest: TreeHead | null,
  context: EventsContext,
): Promise<Blocks | null> {
  const { log, chain, ledger, index } = context
  if (to < from) return null
  const { notary } = log
  const lookedUp = new Set<string>()
  let skippedFrom: number | null = null
  const range = { ...log.domain, notary, fromBlock: from, toBlock: to }
  for await (const events of chain.eventPages(range)) {
    for (const event of events) {
      const known = index.compare(event)
      if (event.kind === 'equivocation') reportContract(ledger, event)
      else if (known === 'same') ledger.pass('heads on chain')
      else if (known === 'other')
        reportEquivocation(ledger, blockOf(event), [
          describeEvent(event),
          'the head of that size that the gateway serves',
        ])
      else if (!lookedUp.has(keyOf(event))) {
        if (lookedUp.size < LOOKUPS_MAX) {
          lookedUp.add(keyOf(event))
          await lookUp(event, newest, context)
          continue
        }
        skippedFrom ??= event.blockNumber
        ledger.skip(
          'heads on chain',
          `more than ${LOOKUPS_MAX} heads in the contract are not among the heads that were read`,
        )
      }
    }
  }
  return skippedFrom === null ? null : { from: skippedFrom, to }
}

/** Checks a head that the audit did not read: outside the range, or hidden by the gateway. */
async function lookUp(
  event: AnchorEvent,
  newest: TreeHead | null,
  { log: { notary }, gateway, ledger, index }: LogContext,
): Promise<void> {
  const served = await gateway.fetchHead(notary, event.size)
  const where = blockOf(event)
  const described = describeEvent(event)
  if (served === null)
    ledger.find('hidden_anchor', {
      where,
      message: `the contract took ${described}, which the gateway does not serve`,
    })
  else if (!equalBytes(served.root, event.root))
    reportEquivocation(ledger, where, [
      described,
      `root ${encodeHex(served.root)}, as the gateway serves it`,
    ])
  else if (newest !== null && !(await isConsistent(event, newest, { gateway, notary })))
    reportEquivocation(ledger, where, [
      described,
      `the head of size ${newest.size}, which contradicts it`,
    ])
  else if (index.covers(event.size))
    ledger.find('head_missing', {
      where,
      message: `the list of heads lacks ${described}, but the gateway serves it when its size is asked for`,
    })
  else ledger.pass('heads on chain')
}

function reportContract(ledger: Ledger, event: AnchorEvent): void {
  const kept = event.kept === null ? 'another root' : `root ${encodeHex(event.kept)}`
  reportEquivocation(ledger, blockOf(event), [
    describeEvent(event),
    `${kept}, as the contract itself reports`,
  ])
}

function describeEvent({ size, root, txHash }: AnchorEvent): string {
  return `size ${size}, root ${encodeHex(root)}, by transaction ${txHash}`
}

function keyOf({ size, root }: AnchorEvent): string {
  return `${size} ${encodeHex(root)}`
}

function blockOf({ blockNumber }: AnchorEvent): string {
  return `block ${blockNumber}`
}
