import type { AttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { printable } from '#attestation/report/printable.ts'
import {
  checkBegun,
  createListingVerifier,
  type ListingVerifier,
} from '#attestation/revocation/listing-verifier.ts'
import {
  type ParsedList,
  parseLists,
  type RevocationListCode,
  RevocationListError,
} from '#attestation/revocation/parse-lists.ts'
import { CliError, convertFault, EXIT_CODES } from '../faults.ts'
import { readSource } from '../files.ts'

/** Bytes: about 100,000 certificates. */
export const LISTS_BYTES_MAX = 4 * 1024 * 1024
const LISTS_TIMEOUT_MS = 30_000

/** Reads lists, which must not be newer than `nowMs`. Throws CliError and UnusableListError. */
export async function readLists(
  sources: readonly string[],
  nowMs: number,
): Promise<readonly ParsedList[]> {
  const given = { bytesMax: LISTS_BYTES_MAX, timeoutMs: LISTS_TIMEOUT_MS }
  const files = await Promise.all(
    sources.map(async (source) => {
      const bytes = await readSource(source, given)
      return convertFault(() => parseLists(bytes, source), RevocationListError, sayListFault)
    }),
  )
  const lists = files.flat()
  convertFault(() => checkBegun(lists, nowMs), RevocationListError, sayListFault)
  return lists
}

/** With these codes, the list was refused before any document was checked. */
const UNREADABLE: ReadonlySet<RevocationListCode> = new Set([
  'malformed',
  'algorithm',
  'unsupported',
  'not_yet_valid',
])

/** The message names the option `--crl`. */
export class UnusableListError extends CliError {
  readonly code: RevocationListCode

  constructor({ code, source, message }: RevocationListError) {
    const exitCode = UNREADABLE.has(code) ? EXIT_CODES.usage : EXIT_CODES.failed
    super(`--crl ${printable(source)}: ${message}`, exitCode)
    this.code = code
  }
}

function sayListFault(fault: RevocationListError): UnusableListError {
  return new UnusableListError(fault)
}

/** Does the same as createListingVerifier, but throws UnusableListError for faults. */
export function openListingVerifier(
  verifier: AttestationVerifier,
  lists: readonly ParsedList[],
  given: { readonly isOfOne: boolean },
): ListingVerifier {
  const listing = createListingVerifier(verifier, lists, given)
  return {
    verify: async (bytes, policy, at) => {
      try {
        return await listing.verify(bytes, policy, at)
      } catch (fault) {
        throw fault instanceof RevocationListError ? sayListFault(fault) : fault
      }
    },
    unused: () =>
      listing
        .unused()
        .map((fault) => (fault instanceof RevocationListError ? sayListFault(fault) : fault)),
  }
}
