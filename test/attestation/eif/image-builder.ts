import { createHash, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { crc32 } from 'node:zlib'
import {
  encodeArray,
  encodeBytes,
  encodeMap,
  encodeText,
  encodeUnsigned,
} from '#enclave/protocol/cbor.ts'
import { CERTIFICATE_PROFILES, issueCertificate, keyIdOf } from '#src/local/nsm/certificate.ts'
import { encodeName } from '#src/local/x509/certificate-builder.ts'

/** EifSectionType on the wire. */
export const TYPE = { kernel: 1, cmdline: 2, ramdisk: 3, signature: 4, metadata: 5 } as const

/** One section to be written. `size` and `flags` are what its header says; by default the truth. */
export type PlannedSection = {
  readonly type: number
  readonly data: Uint8Array
  readonly size?: bigint
  readonly flags?: number
}

/** An image to be written. What is left out is as AWS's tools would write it. */
export type PlannedImage = {
  readonly sections: readonly PlannedSection[]
  readonly magic?: string
  readonly version?: number
  readonly flags?: number
  readonly reserved?: number
  readonly unused?: number
  readonly count?: number
  /** Entries of the table by index, instead of the true ones. */
  readonly offsets?: Readonly<Record<number, bigint>>
  readonly sizes?: Readonly<Record<number, bigint>>
  readonly crc?: number
  readonly trailing?: Uint8Array
}

export const ascii = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'latin1'))

export const KERNEL: PlannedSection = { type: TYPE.kernel, data: ascii('kernel '.repeat(30)) }
export const CMDLINE: PlannedSection = { type: TYPE.cmdline, data: ascii('console=ttyS0') }
export const METADATA: PlannedSection = { type: TYPE.metadata, data: ascii('{"ImageName":"test"}') }
export const RAMDISK: PlannedSection = { type: TYPE.ramdisk, data: ascii('init '.repeat(20)) }
export const APPLICATION: PlannedSection = { type: TYPE.ramdisk, data: ascii('app '.repeat(50)) }

/** As AWS's builder orders them. */
export const USUAL_SECTIONS = [KERNEL, CMDLINE, METADATA, RAMDISK, APPLICATION] as const

/** Gives the bytes of an image, with its right CRC unless `crc` says otherwise. */
export function buildImage(plan: PlannedImage): Uint8Array {
  const header = Buffer.alloc(548)
  header.write(plan.magic ?? '.eif', 'latin1')
  header.writeUInt16BE(plan.version ?? 4, 4)
  header.writeUInt16BE(plan.flags ?? 0, 6)
  header.writeBigUInt64BE(1n << 30n, 8)
  header.writeBigUInt64BE(2n, 16)
  header.writeUInt16BE(plan.reserved ?? 0, 24)
  header.writeUInt16BE(plan.count ?? plan.sections.length, 26)
  header.writeUInt32BE(plan.unused ?? 0, 540)
  let offset = BigInt(header.length)
  for (const [index, { data }] of plan.sections.entries()) {
    header.writeBigUInt64BE(offset, 28 + 8 * index)
    header.writeBigUInt64BE(BigInt(data.length), 284 + 8 * index)
    offset += 12n + BigInt(data.length)
  }
  for (const [index, value] of Object.entries(plan.offsets ?? {}))
    header.writeBigUInt64BE(value, 28 + 8 * Number(index))
  for (const [index, value] of Object.entries(plan.sizes ?? {}))
    header.writeBigUInt64BE(value, 284 + 8 * Number(index))
  const body = Buffer.concat([
    ...plan.sections.map(buildSection),
    plan.trailing ?? new Uint8Array(),
  ])
  header.writeUInt32BE(plan.crc ?? crc32(body, crc32(header.subarray(0, 544))), 544)
  return new Uint8Array(Buffer.concat([header, body]))
}

/** Gives the same image with the CRC that its bytes have now. */
export function repairCrc(image: Uint8Array): Uint8Array {
  const bytes = Buffer.from(image)
  if (bytes.length >= 548)
    bytes.writeUInt32BE(crc32(bytes.subarray(548), crc32(bytes.subarray(0, 544))), 544)
  return new Uint8Array(bytes)
}

/** The measurement of `data` by its definition, all at once. */
export function measurementOf(...data: readonly Uint8Array[]): Uint8Array {
  const inner = createHash('sha384').update(Buffer.concat(data)).digest()
  return new Uint8Array(createHash('sha384').update(new Uint8Array(48)).update(inner).digest())
}

export const CURVES = {
  'P-256': { identifier: -7, hash: 'sha256' },
  'P-384': { identifier: -35, hash: 'sha384' },
  'P-521': { identifier: -36, hash: 'sha512' },
} as const

export type Signer = {
  readonly pem: Uint8Array
  readonly der: Uint8Array
  readonly privateKey: KeyObject
  readonly curve: keyof typeof CURVES
}

/** A signer of images with a certificate of its own. */
export function makeSigner(curve: keyof typeof CURVES): Signer {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: curve })
  const name = encodeName(['CN', 'image signer'])
  const der = issueCertificate(
    {
      profile: CERTIFICATE_PROFILES.leaf,
      subject: name,
      publicKey,
      serial: Uint8Array.of(1),
      notBefore: 1_700_000_000,
      notAfter: 1_800_000_000,
      crlUri: '',
    },
    { name, keyId: keyIdOf(publicKey), privateKey },
  )
  return { pem: encodePem(der), der, privateKey, curve }
}

export function encodePem(der: Uint8Array): Uint8Array {
  const lines = Buffer.from(der)
    .toString('base64')
    .replace(/.{64}(?=.)/g, '$&\n')
  return ascii(`-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`)
}

/** An array of integers, as AWS's tools write bytes. */
export const encodeIntegers = (bytes: Uint8Array): Uint8Array =>
  encodeArray([...bytes].map(encodeUnsigned))

/** `{1: identifier}` for the small negative numbers that COSE algorithms are. */
export const encodeAlgorithm = (identifier: number): Uint8Array =>
  identifier >= -24
    ? Uint8Array.of(0xa1, 0x01, 0x20 | (-1 - identifier))
    : Uint8Array.of(0xa1, 0x01, 0x38, -1 - identifier)

export type SignaturePlan = {
  readonly protectedHeader?: Uint8Array
  readonly unprotected?: Uint8Array
  readonly payload?: Uint8Array
  /** What is done to the signature before it is written. */
  readonly spoil?: (signature: Uint8Array) => Uint8Array
}

/** The COSE_Sign1 of AWS's signer over one register. */
export function signRegister(
  signer: Signer,
  pcr0: Uint8Array,
  plan: SignaturePlan = {},
): Uint8Array {
  const { identifier, hash } = CURVES[signer.curve]
  const header = plan.protectedHeader ?? encodeAlgorithm(identifier)
  const payload = plan.payload ?? encodePayload(0, pcr0)
  const toBeSigned = encodeArray([
    encodeText('Signature1'),
    encodeBytes(header),
    encodeBytes(new Uint8Array()),
    encodeBytes(payload),
  ])
  const signature = sign(hash, toBeSigned, { key: signer.privateKey, dsaEncoding: 'ieee-p1363' })
  return encodeArray([
    encodeBytes(header),
    plan.unprotected ?? encodeMap([]),
    encodeBytes(payload),
    encodeBytes(plan.spoil?.(new Uint8Array(signature)) ?? signature),
  ])
}

export function encodePayload(index: number, value: Uint8Array): Uint8Array {
  return encodeMap([
    [encodeText('register_index'), encodeUnsigned(index)],
    [encodeText('register_value'), encodeIntegers(value)],
  ])
}

export function encodeSignatureSection(certificate: Uint8Array, cose: Uint8Array): Uint8Array {
  return encodeArray([
    encodeMap([
      [encodeText('signing_certificate'), encodeIntegers(certificate)],
      [encodeText('signature'), encodeIntegers(cose)],
    ]),
  ])
}

function buildSection({ type, data, size, flags }: PlannedSection): Uint8Array {
  const header = Buffer.alloc(12)
  header.writeUInt16BE(type, 0)
  header.writeUInt16BE(flags ?? 0, 2)
  header.writeBigUInt64BE(size ?? BigInt(data.length), 4)
  return Buffer.concat([header, data])
}
