import type { DescribedLog, Head } from './answers.ts'
import type { ListedHead } from './check-log.ts'

/** The newest checked head of a log. Later heads must continue this head. */
export type SeenHead = ListedHead & {
  readonly chainId: number
  readonly contract: string
  /** Unix milliseconds, by this browser's clock. */
  readonly atMs: number
}

/** The heads that this browser stores, by notary. */
export type SeenHeads = {
  find(notary: string): SeenHead | null
  /** Never replaces a larger head. Returns false when this browser stores nothing. */
  keep(notary: string, seen: SeenHead): boolean
  /** The notaries with a stored head. */
  list(): readonly string[]
}

/** `storage`: localStorage or similar. Null when there is no storage. */
export function createSeenHeads(storage: Storage | null): SeenHeads {
  const find: SeenHeads['find'] = (notary) => {
    try {
      return parseSeen(JSON.parse(storage?.getItem(nameOf(notary)) ?? 'null'))
    } catch {
      return null
    }
  }
  return {
    find,
    keep(notary, seen) {
      try {
        // Another tab may have stored a larger head, which must not be lost.
        if ((find(notary)?.size ?? 0) > seen.size) return true
        storage?.setItem(nameOf(notary), JSON.stringify(seen))
        return storage !== null
      } catch {
        return false
      }
    },
    list() {
      try {
        const names = Array.from({ length: storage?.length ?? 0 }, (_, at) => storage?.key(at))
        return names.flatMap((name) => name?.match(NAME_FORM)?.[1] ?? [])
      } catch {
        return []
      }
    },
  }
}

/** Null when the browser does not allow storage. */
export function openStorage(): Storage | null {
  try {
    return localStorage
  } catch {
    return null
  }
}

/** The part of a head that is stored. */
export function seenOf(log: DescribedLog, { size, root, signature }: Head, atMs: number): SeenHead {
  return { size, root, signature, chainId: log.chain_id, contract: log.contract, atMs }
}

function nameOf(notary: string): string {
  return `affidavit:seen:${notary}`
}

const NAME_FORM = /^affidavit:seen:(0x[0-9a-f]{40})$/

/** The value may have any form: extensions and people can write to this storage. */
function parseSeen(value: unknown): SeenHead | null {
  if (typeof value !== 'object' || value === null) return null
  const { size, root, signature, chainId, contract, atMs } = value as Record<string, unknown>
  const isSeen =
    isCount(size) &&
    isCount(chainId) &&
    isCount(atMs) &&
    isText(root, /^[0-9a-f]{64}$/) &&
    isText(signature, /^0x[0-9a-f]{130}$/) &&
    isText(contract, /^0x[0-9a-f]{40}$/)
  return isSeen ? { size, root, signature, chainId, contract, atMs } : null
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0
}

function isText(value: unknown, form: RegExp): value is string {
  return typeof value === 'string' && form.test(value)
}
