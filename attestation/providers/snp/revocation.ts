import { equalBytes } from '../../bytes.ts'
import { trimSerial } from '../../nitro/check-revocation.ts'
import {
  coversCertificate,
  type ParsedList,
  parseList,
  RevocationListError,
} from '../../revocation/parse-lists.ts'
import {
  type Established,
  established,
  type NotMade,
  notGiven,
  waived,
} from '../provider-checks.ts'
import type { SnpChain } from './chain.ts'
import type { ResolvedSnpPolicy } from './policy.ts'
import { isPssSha384, verifyPss } from './rsa-pss.ts'
import { refuseReport } from './snp-rules.ts'

/** AMD's lists have about 1,000 bytes. */
const LIST_BYTES_MAX = 65_536

/**
 * Rule 11: looks up the ASK in the list (DER) of the ARK. VCEKs have no list, because all their
 * serials are zero. Returns the end of the list's validity, Unix milliseconds. Throws
 * ProviderEvidenceError.
 */
export async function checkRevocation(
  list: Uint8Array | null,
  {
    ark,
    ask,
    atMs,
    needsRevocationList,
  }: SnpChain & Pick<ResolvedSnpPolicy, 'needsRevocationList'> & { readonly atMs: number },
): Promise<Established<number> | NotMade> {
  if (list === null && !needsRevocationList) return waived('no revocation list is needed')
  if (list === null) return notGiven("AMD's revocation list was")
  const parsed = parse(list)
  if (!equalBytes(parsed.issuer, ark.subject.encoding) || !ark.keyUsage?.cRLSign)
    throw refuseReport('revocation_list_foreign', "expected a list of the chain's ARK")
  if (!(await verifyPss(ark, parsed)))
    throw refuseReport('revocation_list_signature', "expected a list that the ARK's key signed")
  if (!coversCertificate(parsed, ask, true))
    throw refuseReport('revocation_list_unsupported', 'expected a list that covers the ASK')
  const { thisUpdateMs, nextUpdateMs } = parsed
  const [at, from, to] = [atMs, thisUpdateMs, nextUpdateMs].map((ms) => new Date(ms).toISOString())
  const inForce = `expected a list in force at ${at}, got`
  if (thisUpdateMs > atMs)
    throw refuseReport('revocation_list_not_yet_valid', `${inForce} its start ${from}`)
  if (nextUpdateMs < atMs) throw refuseReport('revocation_list_expired', `${inForce} its end ${to}`)
  if (parsed.serials.some((one) => equalBytes(trimSerial(one), trimSerial(ask.serial))))
    throw refuseReport('certificate_revoked', 'ask is revoked, says its ARK')
  return established(nextUpdateMs, `by the list of ${from}`)
}

function parse(list: Uint8Array): ParsedList {
  if (list.length > LIST_BYTES_MAX)
    throw refuseReport('revocation_list_malformed', `expected at most ${LIST_BYTES_MAX} bytes`)
  const signer = { name: 'RSASSA-PSS with SHA-384', isAlgorithm: isPssSha384 }
  try {
    return parseList(new Uint8Array(list), 'list', signer)
  } catch (fault) {
    if (!(fault instanceof RevocationListError)) throw fault
    const code =
      fault.code === 'algorithm' || fault.code === 'unsupported' ? fault.code : 'malformed'
    throw refuseReport(`revocation_list_${code}`, fault.message)
  }
}
