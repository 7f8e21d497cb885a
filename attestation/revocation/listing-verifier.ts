import { encodeHex, sha256 } from '../bytes.ts'
import { AttestationError } from '../nitro/attestation-error.ts'
import type { RevocationList } from '../nitro/check-revocation.ts'
import { decodeAttestationPayload } from '../nitro/document.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { isoOf } from '../report/printable.ts'
import {
  findListOfChain,
  type ListOfChain,
  type ParsedList,
  RevocationListError,
} from './parse-lists.ts'

/** A small number suffices, because enclaves on one host share their chain for hours. */
const CACHED_CHAINS_MAX = 64

export type ListingVerifier = AttestationVerifier & {
  /** Returns an error, with the reason, for each list that no document has used yet. */
  unused(): readonly Error[]
}

/**
 * Creates a verifier that refuses documents with a certificate in one of the lists. If `isOfOne` (a
 * single document), throws RevocationListError or AttestationError for a list that does not apply.
 * Otherwise skips such a list, because the list can apply to another document.
 */
export function createListingVerifier(
  verifier: AttestationVerifier,
  lists: readonly ParsedList[],
  { isOfOne }: { readonly isOfOne: boolean },
): ListingVerifier {
  const silent = new Map<ParsedList, RevocationListError>()
  const used = new Set<ParsedList>()
  const known = new Map<string, Promise<readonly ListOfChain[]>>()

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
    const key = ders.map((der) => encodeHex(sha256(der))).join()
    const found =
      known.get(key) ?? Promise.all(lists.map((parsed) => findListOfChain(parsed, ders)))
    // Moves the entry to the end: the first entry is evicted first.
    known.delete(key)
    known.set(key, found)
    const [oldest] = known.keys()
    if (known.size > CACHED_CHAINS_MAX && oldest !== undefined) known.delete(oldest)
    return found
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

/** Null if the verifier will refuse the document. */
function tryRead(bytes: Uint8Array): ReadDocument | null {
  try {
    const { cabundle, certificate, timestampMs } = decodeAttestationPayload(bytes)
    return { ders: [...cabundle, certificate], timestampMs }
  } catch (fault) {
    if (fault instanceof AttestationError) return null
    throw fault
  }
}

/** Returns an error if the list's period and the validity of the document do not overlap. */
function explainTime(
  { source, thisUpdateMs, nextUpdateMs }: ParsedList,
  { notAfterMs }: Extract<ListOfChain, { kind: 'speaks' }>,
  { timestampMs }: ReadDocument,
): RevocationListError | null {
  if (nextUpdateMs >= timestampMs && thisUpdateMs <= notAfterMs) return null
  const span = `${isoOf(thisUpdateMs)} to ${isoOf(nextUpdateMs)}`
  const message = `expected a list in force when documents were made, got a list for ${span}`
  return new RevocationListError('unused', { source, message })
}

function nothingRead({ source }: ParsedList): RevocationListError {
  const message = 'expected a list of an issuer of some document, and no document was read'
  return new RevocationListError('unused', { source, message })
}

/** Throws RevocationListError if a list is not valid yet at `nowMs`. */
export function checkBegun(lists: readonly ParsedList[], nowMs: number): void {
  const early = lists.find(({ thisUpdateMs }) => thisUpdateMs > nowMs)
  if (early === undefined) return
  const message = `expected a list that is in force, got a list that begins ${isoOf(early.thisUpdateMs)}`
  throw new RevocationListError('not_yet_valid', { source: early.source, message })
}
