import { decodeHex } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import type { LinkedChain } from '../../nitro/chain.ts'
import type { RevocationList } from '../../nitro/check-revocation.ts'
import { latin1 } from '../../nitro/der.ts'
import { isSignatureInRange, P256, verifyEcdsa } from '../../nitro/ecdsa.ts'
import {
  findListOfCertificates,
  parseLists,
  RevocationListError,
} from '../../revocation/parse-lists.ts'
import { checkProviderLists, parsePemChain, verifyProviderChain } from '../provider-chain.ts'
import { ProviderEvidenceError } from '../provider-error.ts'
import type { SignedText, TdxCollateral } from './collateral.ts'
import { INTEL_CERTIFICATES, type Pck } from './pck.ts'
import {
  type EvaluationNumbers,
  type Issue,
  parseEvaluationNumbers,
  parseQeIdentity,
  parseTcbInfo,
  type QeIdentity,
  type TcbInfo,
} from './tcb-info.ts'
import { type TdxCode, tdxFault } from './tdx-codes.ts'
import type { ResolvedTdxPolicy } from './tdx-policy.ts'

export type CollateralDemand = Pick<ResolvedTdxPolicy, 'roots' | 'evaluationNumberMin'> & {
  readonly atMs: number
  /**
   * By the PEM of the chain. TCB info and QE identity usually have the same chain, which is then
   * verified only once.
   */
  readonly issuers: Map<string, Promise<IssuerChain>>
}

/** The root and the TCB signing certificate. */
type IssuerChain = Awaited<ReturnType<typeof verifyProviderChain>>

type Certificates = LinkedChain['certificates']

/** Data are valid from and until these times. Unix milliseconds, inclusive. */
export type ForceWindow = { readonly fromMs: number; readonly toMs: number }

type IntelLists = { readonly root: RevocationList; readonly authority: RevocationList }

/**
 * Reads the list of the root and the list of the CA that issued the PCK certificate. Verifies the
 * signatures of both. Throws ProviderEvidenceError.
 */
export async function readIntelLists(
  { rootCrl, pckCrl }: Pick<TdxCollateral, 'rootCrl' | 'pckCrl'>,
  { certificates }: Pick<Pck, 'certificates'>,
): Promise<IntelLists> {
  const [root, authority] = await Promise.all([
    readList(rootCrl, 'root CRL', certificates.slice(0, 2)),
    readList(pckCrl, 'PCK CRL', certificates.slice(1)),
  ])
  return { root, authority }
}

/**
 * Refuses a revoked certificate in the PCK chain or in `others`, which are chains (root first) with
 * the same root. Returns the period in which both lists and all these certificates are valid.
 * Throws ProviderEvidenceError.
 */
export async function checkIntelLists(
  { root, authority }: IntelLists,
  {
    pck: { certificates },
    others,
    atMs,
  }: {
    readonly pck: Pick<Pck, 'certificates'>
    readonly others: readonly Certificates[]
    readonly atMs: number
  },
): Promise<ForceWindow> {
  await checkProviderLists(certificates, { lists: [root, authority], atMs })
  for (const chain of others) await checkProviderLists(chain, { lists: [root], atMs })
  const all = [certificates, ...others].flat()
  return {
    fromMs: Math.max(
      root.thisUpdateMs,
      authority.thisUpdateMs,
      ...all.map(({ notBeforeMs }) => notBeforeMs),
    ),
    toMs: Math.min(
      root.nextUpdateMs,
      authority.nextUpdateMs,
      ...all.map(({ notAfterMs }) => notAfterMs),
    ),
  }
}

/** `chain` has two certificates: the list's issuer, and a certificate that this issuer signed. */
async function readList(bytes: Uint8Array, source: string, chain: Certificates) {
  try {
    const [parsed] = parseLists(binaryOf(bytes), source, P256)
    if (!parsed) throw tdxFault('crl_malformed', `${source}: expected one list`)
    const found = await findListOfCertificates(parsed, chain)
    if (found.kind === 'silent') throw found.error
    return found.list
  } catch (fault) {
    if (!(fault instanceof RevocationListError)) throw fault
    throw new ProviderEvidenceError(`crl_${fault.code}`, `${source}: ${fault.message}`)
  }
}

/** Decodes a list in hexadecimal text, as a PCCS sends it. Returns other bytes unchanged. */
function binaryOf(list: Uint8Array): Uint8Array {
  const isHex = HEX_OF_SEQUENCE.every((digit, at) => list[at] === digit)
  try {
    return isHex ? decodeHex(latin1(list)) : list
  } catch (fault) {
    if (fault instanceof FormatError) return list
    throw fault
  }
}

/** `30`, the tag of a SEQUENCE. */
const HEX_OF_SEQUENCE = [0x33, 0x30]

type VerifiedText<Value> = { readonly value: Value; readonly certificates: Certificates }

/** Checks chain, signature, kind and dates. Throws ProviderEvidenceError. */
export async function verifyTcbInfo(
  text: SignedText,
  demand: CollateralDemand,
): Promise<VerifiedText<TcbInfo>> {
  const certificates = await verifyText(text, 'tcb_info_signature', demand)
  const value = parseTcbInfo(text.signed)
  if (value.id !== 'TDX' || value.version !== 3 || value.tcbType !== 0)
    throw tdxFault('tcb_info_id', 'expected a TCB info of TDX, version 3, type 0')
  checkIssue(value, 'tcb_info', demand)
  checkNumber(value, 'tcb_info', demand)
  return { value, certificates }
}

/** Throws ProviderEvidenceError. */
export function checkPlatformKind(info: TcbInfo, { fmspc, pceId }: Pck): void {
  if (info.fmspc !== fmspc)
    throw tdxFault('tcb_info_fmspc', `expected a TCB info for FMSPC ${fmspc}, got ${info.fmspc}`)
  if (info.pceId !== pceId)
    throw tdxFault('tcb_info_pce_id', `expected a TCB info for PCEID ${pceId}`)
}

/** Checks chain, signature, kind and dates. Throws ProviderEvidenceError. */
export async function verifyQeIdentity(
  text: SignedText,
  demand: CollateralDemand,
): Promise<VerifiedText<QeIdentity>> {
  const certificates = await verifyText(text, 'qe_identity_signature', demand)
  const value = parseQeIdentity(text.signed)
  if (value.id !== 'TD_QE' || value.version !== 2)
    throw tdxFault('qe_identity_id', 'expected an identity of TD_QE, version 2')
  checkIssue(value, 'qe_identity', demand)
  checkNumber(value, 'qe_identity', demand)
  return { value, certificates }
}

/** Checks chain, signature, kind and dates. Throws ProviderEvidenceError. */
export async function verifyEvaluationNumbers(
  text: SignedText,
  demand: CollateralDemand,
): Promise<VerifiedText<EvaluationNumbers>> {
  const certificates = await verifyText(text, 'evaluation_numbers_signature', demand)
  const value = parseEvaluationNumbers(text.signed)
  if (value.id !== 'TDX' || value.version !== 1)
    throw tdxFault('evaluation_numbers_id', 'expected evaluation numbers of TDX, version 1')
  checkIssue(value, 'evaluation_numbers', demand)
  return { value, certificates }
}

async function verifyText(
  { signed, signature, issuerChain }: SignedText,
  code: TdxCode,
  { issuers, ...demand }: CollateralDemand,
): Promise<Certificates> {
  const started = issuers.get(issuerChain) ?? verifyIssuer(issuerChain, demand)
  issuers.set(issuerChain, started)
  const chain = await started
  const isInRange = isSignatureInRange(signature, P256)
  if (!isInRange || !(await verifyEcdsa({ key: chain.leafKey, signature, data: signed })))
    throw tdxFault(code, `expected a signature by ${TCB_SIGNING_NAME}`)
  return chain.certificates
}

async function verifyIssuer(
  pem: string,
  { roots, atMs }: Omit<CollateralDemand, 'issuers'>,
): Promise<IssuerChain> {
  const ders = parsePemChain(pem, 'issuer chain').toReversed()
  const chain = await verifyProviderChain(ders, { roots, atMs, profile: INTEL_CERTIFICATES })
  if (ders.length !== 2 || chain.leaf.subject.commonName !== TCB_SIGNING_NAME)
    throw tdxFault('tcb_signing_names', `expected a chain of the root and ${TCB_SIGNING_NAME}`)
  return chain
}

const TCB_SIGNING_NAME = 'Intel SGX TCB Signing'

function checkIssue(
  { issueDateMs, nextUpdateMs }: Issue,
  kind: 'tcb_info' | 'qe_identity' | 'evaluation_numbers',
  { atMs }: CollateralDemand,
): void {
  if (atMs < issueDateMs)
    throw tdxFault(
      `${kind}_not_yet_valid`,
      `expected a text issued by ${isoOf(atMs)}, got ${isoOf(issueDateMs)}`,
    )
  if (atMs > nextUpdateMs)
    throw tdxFault(
      `${kind}_expired`,
      `expected a text in force at ${isoOf(atMs)}, got its end ${isoOf(nextUpdateMs)}`,
    )
}

function checkNumber(
  { evaluationNumber }: TcbInfo | QeIdentity,
  kind: 'tcb_info' | 'qe_identity',
  { evaluationNumberMin }: CollateralDemand,
): void {
  if (evaluationNumber < evaluationNumberMin)
    throw tdxFault(
      `${kind}_too_old`,
      `expected tcbEvaluationDataNumber of at least ${evaluationNumberMin}, got ${evaluationNumber}`,
    )
}

function isoOf(timeMs: number): string {
  return new Date(timeMs).toISOString()
}
