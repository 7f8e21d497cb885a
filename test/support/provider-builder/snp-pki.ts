import { constants, createHash, generateKeyPairSync, sign } from 'node:crypto'
import type { SnpCertificates } from '#attestation/providers/snp/chain.ts'
import type { SnpProduct, TcbVersion } from '#attestation/providers/snp/tcb.ts'
import {
  authorityConstraints,
  buildCertificate,
  type CertificateParts,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  type KeyPair,
  keyUsage,
  nameOf,
  publicKeyInfo,
  VERSION_3,
  validityOf,
} from '../nitro-builder/certificate-builder.ts'
import { type ListParts, listBy } from '../nitro-builder/crl-builder.ts'
import {
  bitString,
  encodeDer,
  integer,
  objectIdentifier,
  sequence,
} from '../nitro-builder/der-encoder.ts'

/** When the reports of these tests are judged. Every certificate is valid at that time. */
export const SNP_AT = new Date('2026-03-04T05:06:07.000Z')

export type SnpSigner = 'VCEK' | 'VLEK'

/** The parts of a standard chain. */
export type SnpChainParts = {
  readonly product: SnpProduct
  readonly signer: SnpSigner
  readonly tcb: TcbVersion
  readonly hardwareId: Uint8Array
}

/** Changes to the certificates of a chain before they are signed. */
export type SnpChainChange = {
  readonly ark?: Partial<CertificateParts>
  readonly ask?: Partial<CertificateParts>
  readonly vek?: Partial<CertificateParts>
}

export const SHA384_IDENTIFIER = sequence(
  objectIdentifier('2.16.840.1.101.3.4.2.2'),
  encodeDer(0x05),
)
const SHA256_IDENTIFIER = sequence(objectIdentifier('2.16.840.1.101.3.4.2.1'), encodeDer(0x05))

/** AlgorithmIdentifier of RSASSA-PSS as AMD writes it, with or without its default trailer. */
export function pssAlgorithm({
  hash = SHA384_IDENTIFIER,
  salt = 48,
  trailer = false,
}: {
  readonly hash?: Uint8Array
  readonly salt?: number
  readonly trailer?: boolean
} = {}): Uint8Array<ArrayBuffer> {
  const mgf1 = sequence(objectIdentifier('1.2.840.113549.1.1.8'), hash)
  const parameters = sequence(
    encodeDer(0xa0, hash),
    encodeDer(0xa1, mgf1),
    encodeDer(0xa2, integer(salt)),
    ...(trailer ? [encodeDer(0xa3, integer(1))] : []),
  )
  return sequence(objectIdentifier('1.2.840.113549.1.1.10'), parameters)
}

export const PSS_SHA256 = pssAlgorithm({ hash: SHA256_IDENTIFIER })

/** Makes the bit string of an RSASSA-PSS signature. */
export function pssWith(
  { privateKey: key }: KeyPair,
  saltLength = 48,
): (signed: Uint8Array) => Uint8Array {
  const padding = constants.RSA_PKCS1_PSS_PADDING
  return (signed) => bitString(sign('sha384', signed, { key, padding, saltLength }))
}

export function generateRsaKey(modulusLength = 4096, publicExponent = 0x10001): KeyPair {
  return generateKeyPairSync('rsa', { modulusLength, publicExponent })
}

/** The keys of the development authorities. Nothing else trusts them. */
export const arkKey = generateRsaKey()
export const askKey = generateRsaKey()
export const vekKey = generateKey()

const AMD_ARC = '1.3.6.1.4.1.3704.1.'
export const AMD_TYPES = {
  structure: `${AMD_ARC}1`,
  product: `${AMD_ARC}2`,
  bootloader: `${AMD_ARC}3.1`,
  tee: `${AMD_ARC}3.2`,
  snp: `${AMD_ARC}3.3`,
  microcode: `${AMD_ARC}3.8`,
  fmc: `${AMD_ARC}3.9`,
  hardwareId: `${AMD_ARC}4`,
  provider: `${AMD_ARC}5`,
} as const

export const ia5String = (text: string) => encodeDer(0x16, Buffer.from(text))

/** The values of AMD's extensions, by type, as AMD writes them. */
export function amdValues(parts: SnpChainParts): Map<string, Uint8Array> {
  const { product, signer, tcb, hardwareId } = parts
  const values = new Map<string, Uint8Array>([
    [AMD_TYPES.structure, integer(0)],
    [AMD_TYPES.product, ia5String(product === 'Milan' ? 'Milan-B0' : product)],
  ])
  for (const [part, version] of Object.entries(tcb))
    values.set(AMD_TYPES[part as keyof TcbVersion], integer(version))
  if (signer === 'VCEK') values.set(AMD_TYPES.hardwareId, hardwareId)
  else values.set(AMD_TYPES.provider, ia5String('cloud.example'))
  return values
}

export function amdExtensions(values: ReadonlyMap<string, Uint8Array>): readonly Uint8Array[] {
  return [...values].map(([type, value]) => extension(type, { critical: false, value }))
}

const YEAR_MS = 365 * 86_400_000
const around = (years: number) =>
  validityOf(
    new Date(SNP_AT.getTime() - years * YEAR_MS),
    new Date(SNP_AT.getTime() + years * YEAR_MS),
  )

const { keyCertSign, cRLSign } = KEY_USAGE_BITS

/** The keyUsage of AMD's ASKs, with a trailing zero bit. */
export const askKeyUsage = extension('2.5.29.15', {
  critical: true,
  value: bitString(Uint8Array.of(keyCertSign), 1),
})

export const authorityName = (product: SnpProduct, signer: SnpSigner) =>
  nameOf(signer === 'VCEK' ? `SEV-${product}` : `SEV-VLEK-${product}`)

/** The parts of each certificate as AMD makes them. */
export function snpCertificateParts(
  parts: SnpChainParts,
): Record<keyof SnpCertificates, CertificateParts> {
  const { product, signer } = parts
  const root = nameOf(`ARK-${product}`)
  const authority = authorityName(product, signer)
  const trailing = pssAlgorithm({ trailer: true })
  const common = { version: VERSION_3, extraFields: [] }
  return {
    ark: {
      ...common,
      serial: integer(0x10000),
      innerAlgorithm: trailing,
      issuer: root,
      validity: around(20),
      subject: root,
      publicKey: publicKeyInfo(arkKey),
      extensions: [keyUsage(keyCertSign | cRLSign), authorityConstraints(null)],
      outerAlgorithm: trailing,
      sign: pssWith(arkKey),
    },
    ask: {
      ...common,
      serial: integer(0x10001),
      innerAlgorithm: trailing,
      issuer: root,
      validity: around(20),
      subject: authority,
      publicKey: publicKeyInfo(askKey),
      extensions: [authorityConstraints(0), askKeyUsage],
      outerAlgorithm: trailing,
      sign: pssWith(arkKey),
    },
    vek: {
      ...common,
      serial: integer(0),
      innerAlgorithm: pssAlgorithm(),
      issuer: authority,
      validity: around(3),
      subject: nameOf(`SEV-${signer}`),
      publicKey: publicKeyInfo(vekKey),
      extensions: amdExtensions(amdValues(parts)),
      outerAlgorithm: pssAlgorithm(),
      sign: pssWith(askKey),
    },
  }
}

/** A chain with changes. Certificates without a change are made once. */
export function buildSnpChain(parts: SnpChainParts, change: SnpChainChange = {}) {
  const made = snpCertificateParts(parts)
  const build = (level: keyof SnpCertificates) => {
    if (change[level] !== undefined) return buildCertificate({ ...made[level], ...change[level] })
    const key = `${level} ${JSON.stringify(parts)}`
    const known = standard.get(key) ?? buildCertificate(made[level])
    standard.set(key, known)
    return known
  }
  const ark = build('ark')
  return { vek: build('vek'), ask: build('ask'), ark, arkSha256: hashOf(ark) }
}

/** A list by the development ARK of Milan, with changes. */
export function buildSnpList(changed: Partial<ListParts> = {}): Uint8Array<ArrayBuffer> {
  const algorithm = pssAlgorithm({ trailer: true })
  const issuer = { name: nameOf('ARK-Milan'), key: arkKey }
  const made = { innerAlgorithm: algorithm, outerAlgorithm: algorithm, sign: pssWith(arkKey) }
  return listBy(issuer, { ...made, ...changed })
}

const standard = new Map<string, Uint8Array<ArrayBuffer>>()

function hashOf(der: Uint8Array): Uint8Array {
  return new Uint8Array(createHash('sha256').update(der).digest())
}
