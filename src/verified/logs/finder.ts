import type { RecordsStore } from '../records/records-store.ts'
import type { AnchoredHead, AnchoredHeadsStore } from './anchored-heads-store.ts'
import { describeStoredHead } from './logs.ts'
import type { LogsStore } from './logs-store.ts'

/** Hex is lower case, without 0x. */
export type Sought =
  /** 32 bytes: the hash of a completion, of an anchor's transaction, or of the anchor's block. */
  | { readonly kind: 'hash'; readonly hash: string }
  /** 20 bytes. */
  | { readonly kind: 'notary'; readonly address: string }
  | { readonly kind: 'block'; readonly number: number }

const FOUND_HEADS_MAX = 20

export type Finder = { find(sought: Sought): Promise<object> }

/** `isEvidencePublic`: callers without a key can find completions. */
export function createFinder({
  records,
  logs,
  heads,
  isEvidencePublic,
}: {
  readonly records: Pick<RecordsStore, 'findProof'>
  readonly logs: Pick<LogsStore, 'find'>
  readonly heads: AnchoredHeadsStore
  readonly isEvidencePublic: boolean
}): Finder {
  async function findCompletion(hash: string) {
    const record = isEvidencePublic ? await records.findProof(hash) : null
    return record && { hash: record.hash, notary: record.notary, index: record.index }
  }
  async function findLog(notary: string) {
    const log = await logs.find(notary)
    return log && { notary, size: log.size }
  }
  const answer = { completion: null, log: null, ...describeHeads([]) }
  return {
    async find(sought) {
      switch (sought.kind) {
        case 'hash': {
          const [completion, found] = await Promise.all([
            findCompletion(sought.hash),
            heads.listByHash(sought.hash, FOUND_HEADS_MAX + 1),
          ])
          const restricted = !isEvidencePublic
          return { ...answer, completion, restricted, ...describeHeads(found) }
        }
        case 'notary':
          return { ...answer, restricted: false, log: await findLog(`0x${sought.address}`) }
        case 'block': {
          const found = await heads.listByBlock(sought.number, FOUND_HEADS_MAX + 1)
          return { ...answer, restricted: false, ...describeHeads(found) }
        }
      }
    },
  }
}

function describeHeads(found: readonly AnchoredHead[]) {
  return {
    heads: found
      .slice(0, FOUND_HEADS_MAX)
      .map((head) => ({ notary: head.notary, ...describeStoredHead(head) })),
    more_heads: found.length > FOUND_HEADS_MAX,
  }
}
