import { addressOf } from '../../../attestation/account.ts'
import { decodeBase64, decodeHex, encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { digestBootConfiguration } from '../../../attestation/evidence/boot-configuration.ts'
import { headAttestationUserData } from '../../../attestation/evidence/head-attestation.ts'
import { decodeAttestationPayload } from '../../../attestation/nitro/document.ts'
import type { HeadAttestationReply, Identity } from '../../../enclave/protocol/messages.ts'
import { asError } from '../../api/errors.ts'
import type { RecentBlock } from '../../chain/chain-reads.ts'
import type { EnclaveClient } from '../../enclaves/enclave-client.ts'
import type { Logger } from '../../observability/logger.ts'
import { backOffMs } from '../../runtime/back-off.ts'
import { createFaultLog } from '../../runtime/fault-log.ts'
import { createLoop, pause } from '../../runtime/loop.ts'
import { CommitError } from '../commit-error.ts'
import type { HeadAttestationsStore, StoredHeadAttestation } from './head-attestations-store.ts'

/**
 * Pause after a failure: doubled from the first to the second, and never longer than the interval.
 */
const BACKOFF_MIN_MS = 1_000
const BACKOFF_MAX_MS = 60_000
/** While it lasts, a fault is logged again only this often. */
const FAULT_LOG_INTERVAL_MS = 10 * 60_000
/** How long, and how often, a log is looked for whose committer is only just opening it. */
const LOG_WAIT_MS = 10_000
const LOG_POLL_MS = 100

type HeadAttestationsStatus = {
  /**
   * Attestations stored, given up because their enclave was replaced, and refused because they
   * contradict the log.
   */
  readonly kept: number
  readonly dropped: number
  readonly contradictions: number
  /** Why the last attempt failed; null after one that did not. */
  readonly fault: { readonly name: string; readonly message: string } | null
}

/** Has the log attested at intervals. */
export type HeadAttestations = {
  start(): void
  /** Breaks off what runs, and resolves when nothing is left running. */
  stop(): Promise<void>
  status(): HeadAttestationsStatus
}

export type HeadAttestationsOptions = {
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'attestHead'>
  /** Resolves once a leaf is committed; rejects with CommitError when it never will be. */
  readonly committer: {
    waitFor(notary: string, index: number, signal: AbortSignal): Promise<unknown>
  }
  readonly store: Pick<HeadAttestationsStore, 'findRoot' | 'keep'>
  /**
   * A recent block that is expected to stay. The newest could be taken away by a reorganisation,
   * and the document would be left without a block to look up. The few seconds that this one is
   * older are nothing beside the interval.
   */
  readonly fetchBlock: (signal: AbortSignal) => Promise<RecentBlock>
  readonly intervalMs: number
  readonly log: Logger
  /** Milliseconds, monotonic. */
  readonly now: () => number
}

/**
 * Gives what has the enclave attest its log's state over a recent block's hash, at once and then at
 * every interval. It stores the attestation when the log that is committed here has that very root
 * at that size. The enclave counts leaves that are not committed yet, so the attestation is held
 * until they are. It is dropped when its enclave is replaced before that: those leaves are lost.
 * While one is held, no other is asked for: it shows more than a later one.
 *
 * It never throws out of its loop. It does NOT verify the documents' signatures, for which this
 * gateway has no roots: a third party does that (verifyHeadAttestation).
 */
export function createHeadAttestations(options: HeadAttestationsOptions): HeadAttestations {
  const { enclave, committer, store, fetchBlock, intervalMs, log } = options
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, options.now)
  let counts: Readonly<Record<Outcome, number>> = { kept: 0, dropped: 0, contradictions: 0 }
  let fault: HeadAttestationsStatus['fault'] = null
  let failuresInRow = 0

  async function attest(signal: AbortSignal): Promise<Outcome> {
    const block = await fetchBlock(signal)
    const identity = await enclave.identity()
    const { notary, boot_configuration: boot } = identity
    if (block.chainId !== boot.chain_id)
      throw new Error(
        `expected a block of chain ${boot.chain_id}, got a block of chain ${block.chainId}`,
      )
    const attestation = readReply(await enclave.attestHead(block.hash, signal), { identity, block })
    const { size, root } = attestation
    const facts = { notary, size, block: block.number }
    if (!(await awaitCommit({ notary, size }, signal))) {
      log.warn(
        facts,
        'head attestation dropped: its enclave was replaced before its leaves were committed',
      )
      return 'dropped'
    }
    const stored = await findLog({ notary, size }, signal)
    if (!equalBytes(stored.root, root)) {
      const roots = { attestedRoot: encodeHex(root), storedRoot: encodeHex(stored.root) }
      log.error({ ...facts, ...roots }, 'the enclave attests a log that is not the stored log')
      return 'contradictions'
    }
    await store.keep({ ...attestation, logId: stored.logId })
    log.info(facts, 'log attested')
    return 'kept'
  }

  /** Whether the first `size` leaves are committed; false when they never will be. */
  async function awaitCommit({ notary, size }: LogOfSize, signal: AbortSignal): Promise<boolean> {
    if (size === 0) return true
    try {
      await committer.waitFor(notary, size - 1, signal)
      return true
    } catch (error) {
      if (error instanceof CommitError && error.code === 'notary_gone') return false
      throw error
    }
  }

  async function findLog(state: LogOfSize, signal: AbortSignal) {
    const deadline = performance.now() + LOG_WAIT_MS
    for (;;) {
      const found = await store.findRoot(state)
      if (found !== null) return found
      if (performance.now() > deadline)
        throw new Error(`expected ${state.size} leaves of log ${state.notary}`)
      await pause(LOG_POLL_MS, signal)
      signal.throwIfAborted()
    }
  }

  const loop = createLoop(async (signal) => {
    try {
      const outcome = await attest(signal)
      counts = { ...counts, [outcome]: counts[outcome] + 1 }
      failuresInRow = 0
      fault = null
      faults.clear()
      // The log of the next enclave has no attestation yet.
      return outcome === 'dropped' ? Math.min(BACKOFF_MIN_MS, intervalMs) : intervalMs
    } catch (thrown) {
      if (thrown instanceof EnclaveReplaced) enclave.forgetIdentity()
      if (signal.aborted) return 0
      const error = asError(thrown)
      fault = { name: error.name, message: error.message }
      if (faults.isDue(`${error.name}: ${error.message}`))
        log.warn({ err: error }, 'log not attested, trying again')
      failuresInRow++
      const bounds = { minMs: BACKOFF_MIN_MS, maxMs: BACKOFF_MAX_MS }
      return Math.min(backOffMs(failuresInRow, bounds, { jitter: 'none' }), intervalMs)
    }
  })

  return { start: loop.start, stop: loop.stop, status: () => ({ ...counts, fault }) }
}

/** What became of one attestation. */
type Outcome = 'kept' | 'dropped' | 'contradictions'

type LogOfSize = { readonly notary: string; readonly size: number }

/** The document is of another key than the enclave had a moment ago. */
class EnclaveReplaced extends Error {
  override readonly name = 'EnclaveReplaced'
}

/**
 * What the enclave attested, compared with what it was asked. Throws EnclaveReplaced, and Error for
 * any other document.
 */
function readReply(
  reply: HeadAttestationReply,
  { identity, block }: { readonly identity: Identity; readonly block: RecentBlock },
): StoredHeadAttestation {
  const { notary, boot_configuration: boot } = identity
  const { size } = reply
  const root = decodeHex(reply.root)
  const document = decodeBase64(reply.document)
  const { publicKey, userData, nonce, timestampMs } = decodeAttestationPayload(document)
  if (publicKey === null || addressOf(publicKey) !== notary)
    throw new EnclaveReplaced(`expected a document of ${notary}, got a document of another key`)
  const blockHash = decodeHex(block.hash)
  const configuration = digestBootConfiguration(boot)
  const expected = headAttestationUserData({ configuration, notary, size, root })
  if (
    userData === null ||
    nonce === null ||
    !equalBytes(userData, expected) ||
    !equalBytes(nonce, blockHash)
  )
    throw new Error(
      'expected a document over the head that came with it and the hash that was sent',
    )
  const createdAt = Math.floor(timestampMs / 1000)
  return { size, root, blockNumber: block.number, blockHash, document, createdAt }
}
