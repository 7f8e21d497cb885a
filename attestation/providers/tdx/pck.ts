import { encodeHex } from '../../bytes.ts'
import {
  type Certificate,
  type CertificateProfile,
  parseCertificate,
} from '../../nitro/certificate.ts'
import {
  DER_TAGS,
  DerError,
  type DerNode,
  decodeDer,
  decodeObjectIdentifier,
} from '../../nitro/der.ts'
import { type EcdsaKey, P256 } from '../../nitro/ecdsa.ts'
import { asProviderFault, verifyProviderChain } from '../provider-chain.ts'
import { tdxFault } from './tdx-codes.ts'

/** Source: Intel SGX PCK Certificate specification. */
export type Pck = {
  /** Root first, the PCK certificate last. */
  readonly certificates: readonly Certificate[]
  readonly key: EcdsaKey
  /** The kind of platform: 6 bytes, lower-case hex. */
  readonly fmspc: string
  /** 2 bytes, lower-case hex. */
  readonly pceId: string
  /** Identifies the platform: 16 bytes, lower-case hex. */
  readonly ppid: string
  /** SVNs of the platform's 16 components. */
  readonly components: readonly number[]
  readonly pceSvn: number
}

/**
 * Object identifier of the SGX extensions, which only PCK certificates have. Their value has an
 * ENUMERATED.
 */
const SGX_EXTENSIONS = '1.2.840.113741.1.13.1'

export const INTEL_CERTIFICATES: CertificateProfile = {
  curve: P256,
  isOpaque: (type) => type === SGX_EXTENSIONS,
  authorities: 'chain',
}

const AUTHORITY_NAMES: ReadonlySet<string | null> = new Set([
  'Intel SGX PCK Platform CA',
  'Intel SGX PCK Processor CA',
])
const PCK_NAME = 'Intel SGX PCK Certificate'

/** `ders` begins with the root. Throws ProviderEvidenceError. */
export async function verifyPck(
  ders: readonly Uint8Array<ArrayBuffer>[],
  { roots, atMs }: { readonly roots: readonly Uint8Array[]; readonly atMs: number },
): Promise<Pck> {
  const chain = await verifyProviderChain(ders, { roots, atMs, profile: INTEL_CERTIFICATES })
  const [, authority, leaf] = chain.certificates
  if (
    !AUTHORITY_NAMES.has(authority?.subject.commonName ?? null) ||
    leaf?.subject.commonName !== PCK_NAME
  )
    throw tdxFault('pck_names', 'expected a PCK certificate by the PCK Platform or Processor CA')
  const extension = leaf.opaque.get(SGX_EXTENSIONS)
  if (!extension) throw malformed()
  return { certificates: chain.certificates, key: chain.leafKey, ...parseExtension(extension) }
}

/**
 * Reads an attacker-controlled PCK certificate (DER). Returns its FMSPC, and the CA of Intel that
 * issued it: both select the collateral. Verifies nothing. Throws ProviderEvidenceError.
 */
export async function readPckClaims(
  der: Uint8Array<ArrayBuffer>,
): Promise<{ readonly fmspc: string; readonly authority: 'platform' | 'processor' }> {
  const leaf = await asProviderFault(() => parseCertificate(der, 'leaf', INTEL_CERTIFICATES))
  const extension = leaf.opaque.get(SGX_EXTENSIONS)
  if (!extension) throw malformed()
  const isProcessor = leaf.issuer.commonName === 'Intel SGX PCK Processor CA'
  return {
    fmspc: parseExtension(extension).fmspc,
    authority: isProcessor ? 'processor' : 'platform',
  }
}

type PckExtension = Omit<Pck, 'certificates' | 'key'>

function parseExtension(bytes: Uint8Array<ArrayBuffer>): PckExtension {
  const values = valuesOf(decode(bytes), SGX_EXTENSIONS)
  const tcb = valuesOf(values.get('2'), `${SGX_EXTENSIONS}.2`)
  return {
    ppid: octetsOf(values.get('1'), 16),
    components: COMPONENT_ARCS.map((arc) => numberOf(tcb.get(arc), 1)),
    pceSvn: numberOf(tcb.get('17'), 2),
    pceId: octetsOf(values.get('3'), 2),
    fmspc: octetsOf(values.get('4'), 6),
  }
}

const COMPONENT_ARCS = Array.from({ length: 16 }, (_, index) => `${index + 1}`)

/** Reads pairs (identifier, value). Keys of the result are the identifiers without `prefix`. */
function valuesOf(node: DerNode | undefined, prefix: string): ReadonlyMap<string, DerNode> {
  const values = new Map<string, DerNode>()
  for (const { tag, children } of node?.tag === DER_TAGS.sequence ? node.children : []) {
    const [type, value] = children
    if (tag !== DER_TAGS.sequence || children.length !== 2 || !value) throw malformed()
    if (type?.tag !== DER_TAGS.objectIdentifier) throw malformed()
    const identifier = decodeObjectIdentifier(type.content)
    const arc = identifier.slice(prefix.length + 1)
    if (identifier !== `${prefix}.${arc}` || values.has(arc)) throw malformed()
    values.set(arc, value)
  }
  return values
}

function octetsOf(node: DerNode | undefined, bytes: number): string {
  if (node?.tag !== DER_TAGS.octetString || node.content.length !== bytes) throw malformed()
  return encodeHex(node.content)
}

/** An INTEGER from 0 to the largest number of `bytes` bytes. */
function numberOf(node: DerNode | undefined, bytes: number): number {
  const value = node?.tag === DER_TAGS.integer ? Number.parseInt(encodeHex(node.content), 16) : -1
  const isNegative = ((node?.content[0] ?? 0x80) & 0x80) !== 0
  if (isNegative || value < 0 || value >= 256 ** bytes) throw malformed()
  return value
}

function decode(bytes: Uint8Array<ArrayBuffer>): DerNode {
  try {
    return decodeDer(bytes, true)
  } catch (fault) {
    if (fault instanceof DerError) throw malformed()
    throw fault
  }
}

function malformed() {
  return tdxFault('pck_extension', 'leaf: expected SGX extensions with PPID, TCB, PCEID and FMSPC')
}
