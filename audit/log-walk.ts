import { encodeHex } from '#attestation/bytes.ts'
import type { AnchorAudit } from './anchors.ts'
import type { LogContext } from './audit-context.ts'
import { type HeadJudge, isSigned } from './compare-heads.ts'
import type { AttestationAudit, AttestedHead } from './documents.ts'
import type { ServedHead } from './gateway.ts'
import { GatewayFault } from './gateway-http.ts'
import { readAhead } from './read-ahead.ts'
import type { RecordAudit, RecordReader } from './records.ts'
import type { TreeWalk } from './tree.ts'

/** Number of heads in one step. Each step ends with `onStep`. */
const STEP_HEADS = 50

/**
 * The walk ends after this many refused heads in a row: a gateway could serve unsigned heads
 * forever.
 */
const REFUSED_HEADS_MAX = 2_000

type WalkParts = LogContext & {
  readonly heads: HeadJudge
  readonly tree: TreeWalk
  readonly leaves: ReturnType<typeof openLeafReader>
  readonly anchors: AnchorAudit
  readonly attestations: AttestationAudit
  /** Null if records are left out (`scope.recordsLeftOut`). */
  readonly records: { readonly audit: RecordAudit; readonly reader: RecordReader } | null
  /**
   * Called after each step. If `isWhole`, everything up to the newest head was compared, and the
   * next run can continue there.
   */
  readonly onStep: (step: { readonly size: number; readonly isWhole: boolean }) => Promise<void>
}

export type WalkOutcome = {
  readonly headCount: number
  readonly confirmedSize: number
  /**
   * Size of the largest signed head that was read. The walk ends at a smaller size if the log has
   * grown, or if the gateway claims too small a size.
   */
  readonly servedSize: number
  /** The largest size that a head attestation covers. */
  readonly attestedSize: number
  /** True if every walked head matches the tree. */
  readonly isWhole: boolean
}

/**
 * Reads a log's heads, and for each head its leaves and records, with at most two pages of each
 * kind in memory. Ends at the size that the log had when the audit began, or at the first head with
 * at least `scope.to` leaves. Throws GatewayFault, ChainFault.
 */
export async function walkLog(parts: WalkParts): Promise<WalkOutcome> {
  const { log, gateway, heads, scope } = parts
  const end = Math.min(log.size, scope.to ?? log.size)
  const walk = new Walk(parts)
  let headCount = 0
  let confirmedSize = 0
  let servedSize = 0
  let after = heads.newest()?.size ?? null
  for await (const page of readAhead(gateway.headPages(log.notary, after))) {
    walk.takeAttested(await parts.attestations(page.attestations, { after, through: page.cursor }))
    after = page.cursor
    const signed = page.heads.findLast((head) => isSigned(head, parts))
    servedSize = Math.max(servedSize, signed?.size ?? 0)
    const reach = page.heads.filter(({ size }) => size <= log.size)
    for (let start = 0; start < reach.length && walk.size < end; start += STEP_HEADS) {
      const taken = await walk.walkHeads(reach.slice(start, start + STEP_HEADS), end)
      const looked = taken.filter(({ size }) => size > scope.from)
      await parts.anchors.check(looked, (size) => walk.attestedAtMs(size))
      headCount += taken.length
      confirmedSize =
        taken.findLast(({ anchor }) => anchor.state === 'confirmed')?.size ?? confirmedSize
      await parts.onStep({ size: walk.size, isWhole: walk.isWhole })
    }
    const isBeyond = page.cursor !== null && page.cursor >= log.size
    if (walk.size >= end || isBeyond || walk.refused > REFUSED_HEADS_MAX) break
  }
  walk.finish()
  return {
    headCount,
    confirmedSize,
    servedSize,
    attestedSize: walk.attestedSize,
    isWhole: walk.isWhole,
  }
}

/** `root`: the tree's root at the attestation's size, hex. */
type AttestedRoot = { readonly attested: AttestedHead; readonly root: string }

class Walk {
  private readonly parts: WalkParts
  /** Number of leaves that the walk has passed. While `isWhole` is true, the tree has this size. */
  private position: number
  /**
   * False after a leaf was missing, or after the leaves contradicted a head. After that, there is
   * no tree to compare with.
   */
  isWhole = true
  /** Number of refused heads since the last accepted head. */
  refused = 0
  attestedSize = 0
  /** Attestations at the current position or later, by size. */
  private attested: AttestedHead[] = []
  private page: readonly AttestedHead[] = []

  constructor(parts: WalkParts) {
    this.parts = parts
    this.position = parts.tree.size
  }

  get size(): number {
    return this.position
  }

  /** Each attestation is compared with the tree when the walk reaches its size. */
  takeAttested(attested: readonly AttestedHead[]): void {
    this.page = attested
    this.attestedSize = Math.max(this.attestedSize, attested.at(-1)?.size ?? 0)
    // Attestations beyond the log's size are ignored: the log has grown since the audit began.
    this.attested.push(...attested.filter(({ size }) => size <= this.parts.log.size))
  }

  /** Returns the time of the page's first attestation with at least `size` leaves, or null. */
  attestedAtMs(size: number): number | null {
    return this.page.find((attested) => attested.size >= size)?.timestampMs ?? null
  }

  /**
   * Compares the attestations at the walk's last position. Reports attestations that were not
   * compared.
   */
  finish(): void {
    const { tree, ledger } = this.parts
    const last = this.attested.filter(({ size }) => this.isWhole && size === tree.size)
    for (const attested of last) this.compareAttested(attested, encodeHex(tree.root()))
    const rest = this.attested.length - last.length
    if (rest > 0)
      ledger.skip(
        'time attestations',
        `${rest} cover more leaves than the ${this.position} that were read`,
      )
  }

  /** Ends at a head of at least `end` leaves. Returns the accepted heads. */
  async walkHeads(heads: readonly ServedHead[], end: number): Promise<readonly ServedHead[]> {
    const taken: ServedHead[] = []
    for (const head of heads) {
      if (this.position >= end) break
      this.refused++
      if (!this.parts.heads.accept(head, `head ${head.size}`)) continue
      this.refused = 0
      await this.walkHead(head)
      taken.push(head)
    }
    return taken
  }

  private async walkHead(head: ServedHead): Promise<void> {
    const { tree, ledger, samples } = this.parts
    const start = this.position
    const attested = await this.advanceOverAttested(head)
    await this.advance(head.size, head)
    const isMatch = this.isWhole && tree.matches(head.root)
    if (isMatch) for (const one of attested) this.compareAttested(one.attested, one.root)
    else {
      samples.dropLeaves(start)
      ledger.skip('time attestations', 'some cover leaves that do not match their head')
      this.isWhole = this.isWhole && (await this.explain(head))
    }
    if (!this.isWhole)
      return ledger.skip('leaves', `no tree can be built from leaf ${tree.matchedEdge.size} on`)
    tree.settle()
    samples.addHead({ size: head.size, root: head.root })
    ledger.pass('leaves', head.size - start)
  }

  /** Returns the tree's root at each attestation that this head covers. */
  private async advanceOverAttested(head: ServedHead): Promise<readonly AttestedRoot[]> {
    const { tree, records } = this.parts
    const roots: AttestedRoot[] = []
    for (;;) {
      const [attested] = this.attested
      if (attested === undefined || attested.size > head.size) return roots
      this.attested.shift()
      await this.advance(attested.size, head)
      records?.audit.timeline.passAttestation(attested.timestampMs)
      if (this.isWhole) roots.push({ attested, root: encodeHex(tree.root()) })
    }
  }

  private async explain(head: ServedHead): Promise<boolean> {
    const { log, tree } = this.parts
    const beyond = log.head !== null && isSigned(log.head, this.parts) ? log.head : null
    return await tree.explain(head, beyond, this.parts)
  }

  private compareAttested(attested: AttestedHead, root: string): void {
    const { ledger } = this.parts
    if (attested.root === root) ledger.pass('time attestations')
    else
      ledger.find('head_attestation_mismatch', {
        where: `attestation of size ${attested.size}`,
        message: `the enclave attested the root ${attested.root}, but the leaves hash to ${root}`,
      })
  }

  /** `head` is the first head that covers these leaves and records. */
  private async advance(to: number, head: ServedHead): Promise<void> {
    const { tree, samples } = this.parts
    while (this.position < to) {
      const leaves = this.isWhole ? await this.takeLeaves(to - this.position) : null
      if (leaves !== null) {
        samples.addLeaves(this.position, leaves)
        tree.append(leaves)
      }
      const count = leaves?.length ?? to - this.position
      await this.checkRecords(count, leaves, head)
      this.position += count
    }
  }

  /** Returns null if the gateway does not serve the next leaf. */
  private async takeLeaves(countMax: number): Promise<readonly Uint8Array[] | null> {
    try {
      return await this.parts.leaves.take(countMax)
    } catch (fault) {
      if (!(fault instanceof GatewayFault) || fault.code !== 'leaf_missing') throw fault
      this.parts.ledger.find(fault.code, fault)
      this.isWhole = false
      return null
    }
  }

  private async checkRecords(
    count: number,
    leaves: readonly Uint8Array[] | null,
    head: ServedHead,
  ): Promise<void> {
    const { records, scope } = this.parts
    if (records === null) return
    for (let at = Math.max(0, scope.from - this.position); at < count; at++) {
      const index = this.position + at
      const leafHash = leaves?.[at] ?? null
      await records.audit.check(await records.reader.take(index), { index, leafHash, head })
    }
  }
}

/** Reads leaf hashes in order, from `start` to the end of the log. Keeps two pages in memory. */
export function openLeafReader({ gateway, log: { notary, size: end } }: LogContext, start: number) {
  const pages = readAhead(readPages())
  let page: readonly Uint8Array[] = []

  async function* readPages(): AsyncGenerator<readonly Uint8Array[]> {
    for (let position = start; position < end; ) {
      const leaves = await gateway.fetchLeaves(notary, position, end)
      yield leaves
      position += leaves.length
    }
  }

  return {
    /** Returns at least one hash. Throws GatewayFault. */
    async take(countMax: number): Promise<readonly Uint8Array[]> {
      if (page.length === 0) {
        const next = await pages.next()
        if (next.done) throw new RangeError(`expected no leaf to be asked for beyond ${end}`)
        page = next.value
      }
      const taken = page.slice(0, countMax)
      page = page.slice(countMax)
      return taken
    },
    close: async (): Promise<void> => void (await pages.return(undefined)),
  }
}
