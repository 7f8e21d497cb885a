import { hash } from 'node:crypto'
import { AttestationError } from '../../../attestation/nitro/attestation-error.ts'
import { decodeAttestationPayload } from '../../../attestation/nitro/document.ts'
import type { RevocationList } from '../../../attestation/nitro/revocation-list.ts'
import type { AttestationVerifier } from '../../../attestation/nitro/verify-attestation.ts'
import { LruMap } from '../../runtime/lru-map.ts'
import { orNull } from '../faults.ts'
import { readSource } from '../files.ts'
import { isoOf } from '../printable.ts'
import {
  findListOfChain,
  type ListOfChain,
  type ParsedList,
  parseLists,
  RevocationListError,
} from './revocation-list.ts'

/**
 * Most chains that are remembered with what each list says of them. Enclaves of one host share
 * theirs for hours.
 */
const CHAINS_MAX = 64

/** A verifier that looks certificates up in lists. */
export type ListingVerifier = AttestationVerifier & {
  /** Why lists said nothing of any document so far; empty when each said something of one. */
  unused(): readonly RevocationListError[]
}

/**
 * Gives a verifier that refuses documents with a certificate in one of the lists. `isOfOne`: it is
 * for one document, and a list that says nothing of it is an error (RevocationListError, or the
 * library's). Otherwise it is for several documents, each at its own time: a list is left out where
 * it says nothing, and `unused` gives those that were left out everywhere.
 */
export function createListingVerifier(
  verifier: AttestationVerifier,
  lists: readonly ParsedList[],
  { isOfOne }: { readonly isOfOne: boolean },
): ListingVerifier {
  const silent = new Map<ParsedList, RevocationListError>()
  const used = new Set<ParsedList>()
  const known = new LruMap<string, Promise<readonly ListOfChain[]>>(CHAINS_MAX)

  async function chooseLists(document: ReadDocument): Promise<readonly RevocationList[]> {
    const found = await remember(document)
    const chosen: RevocationList[] = []
    for (const [at, parsed] of lists.entries()) {
      const one = found[at]
      if (one === undefined) continue
      const error =
        one.kind === 'silent' ? one.error : isOfOne ? null : explainTime(parsed, one, document)
      if (error !== null && isOfOne) throw error
      if (error !== null) silent.set(parsed, error)
      if (error !== null || one.kind === 'silent') continue
      used.add(parsed)
      chosen.push(one.list)
    }
    return chosen
  }

  function remember({ ders }: ReadDocument): Promise<readonly ListOfChain[]> {
    const key = ders.map((der) => hash('sha256', der)).join()
    return known.getOrMake(key, () =>
      Promise.all(lists.map((parsed) => findListOfChain(parsed, ders))),
    )
  }

  return {
    async verify(bytes, policy, at) {
      const document = lists.length === 0 ? null : tryRead(bytes)
      if (document === null) return verifier.verify(bytes, policy, at)
      return verifier.verify(bytes, { ...policy, revocationLists: await chooseLists(document) }, at)
    },
    unused: () =>
      lists.flatMap((parsed) =>
        used.has(parsed) ? [] : [silent.get(parsed) ?? nothingRead(parsed)],
      ),
  }
}

type ReadDocument = {
  readonly ders: readonly Uint8Array<ArrayBuffer>[]
  readonly timestampMs: number
}

/** Null of a document that the library will refuse. */
function tryRead(bytes: Uint8Array): ReadDocument | null {
  const document = orNull(() => decodeAttestationPayload(bytes), AttestationError)
  if (document === null) return null
  const { cabundle, certificate, timestampMs } = document
  return { ders: [...cabundle, certificate], timestampMs }
}

/** As the library has it in historical mode; null when the list is in force. */
function explainTime(
  { source, thisUpdateMs, nextUpdateMs }: ParsedList,
  { notAfterMs }: Extract<ListOfChain, { kind: 'speaks' }>,
  { timestampMs }: ReadDocument,
): RevocationListError | null {
  if (nextUpdateMs >= timestampMs && thisUpdateMs <= notAfterMs) return null
  const message = `expected a list in force when documents were made, got one of ${isoOf(thisUpdateMs)} to ${isoOf(nextUpdateMs)}`
  return new RevocationListError('unused', { source, message })
}

function nothingRead({ source }: ParsedList): RevocationListError {
  const message = 'expected a list of an issuer of some document, and no document was read'
  return new RevocationListError('unused', { source, message })
}

/** Largest file of lists, bytes: some 100,000 certificates. */
export const LISTS_BYTES_MAX = 4 * 1024 * 1024
/** Longest that a list may take to be fetched, milliseconds. */
const LISTS_TIMEOUT_MS = 30_000

/**
 * Gives the lists in files or behind http(s) URLs, made by `nowMs`. Throws CliError,
 * RevocationListError.
 */
export async function readLists(
  sources: readonly string[],
  nowMs: number,
): Promise<readonly ParsedList[]> {
  const given = { bytesMax: LISTS_BYTES_MAX, timeoutMs: LISTS_TIMEOUT_MS }
  const files = await Promise.all(
    sources.map(async (source) => parseLists(await readSource(source, given), source)),
  )
  const lists = files.flat()
  const early = lists.find(({ thisUpdateMs }) => thisUpdateMs > nowMs)
  if (early === undefined) return lists
  const message = `expected a list that is in force, got one that begins ${isoOf(early.thisUpdateMs)}`
  throw new RevocationListError('not_yet_valid', { source: early.source, message })
}
