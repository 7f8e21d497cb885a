import { concatBytes } from '../bytes.ts'
import { JsonError } from '../json/json-error.ts'
import { parseLenientJson } from '../json/parse-lenient.ts'
import { isJsonObject, type JsonObject } from '../json/value.ts'
import { type Digests, PORTABLE_DIGESTS, type RunningHash } from './digests.ts'
import { EifError } from './eif-error.ts'
import {
  checkComplete,
  EIF_CRC_OFFSET,
  EIF_HEADER_BYTES,
  EIF_SECTION_HEADER_BYTES,
  type EifHeader,
  parseEifHeader,
  parseSectionHeader,
  type Section,
} from './format.ts'
import { parseImageSignature, verifyImageSignature } from './signature.ts'

/** The image's bytes, in order. A chunk may have any size. */
type EifSource = {
  readonly sizeBytes: number
  readonly chunks: AsyncIterable<Uint8Array>
}

/**
 * Computes PCR0, 1, 2 and 8 of a Nitro enclave that boots this image, and reads what the image
 * states about itself. Reads the bytes once. Keeps one chunk, the metadata and the signature in
 * memory. The image is attacker-controlled: throws EifError unless every byte has a known purpose,
 * and a signature, if present, is valid. Passes on errors of `chunks`. Does NOT prove what the
 * image does, who made it, or that an enclave runs it.
 *
 * @example
 * const image = await openAsBlob('enclave.eif')
 * const { measurements } = await measureEif({ sizeBytes: image.size, chunks: image.stream() })
 * console.log(encodeHex(measurements.pcr0).slice(0, 8)) // 6915e22f
 */
export async function measureEif(
  source: EifSource,
  digests: Digests = PORTABLE_DIGESTS,
): Promise<EifReport> {
  const iterator = source.chunks[Symbol.asyncIterator]()
  try {
    return await measure(createByteReader(iterator), source.sizeBytes, digests)
  } finally {
    await iterator.return?.()
  }
}

async function measure(
  reader: ByteReader,
  sizeBytes: number,
  digests: Digests,
): Promise<EifReport> {
  const headerBytes = await reader.take(Math.min(EIF_HEADER_BYTES, sizeBytes))
  const header = parseEifHeader(headerBytes, sizeBytes)
  const crc = digests.crc32(headerBytes.subarray(0, EIF_CRC_OFFSET), 0)
  const body = await readSections({ reader, header, digests, crc })
  await reader.expectEnd()
  checkComplete(body.sections)
  if (body.crc !== header.crc32)
    throw new EifError(
      'crc',
      `expected CRC-32 ${hex32(header.crc32)} as in the header, got ${hex32(body.crc)}`,
    )
  const metadata = body.metadata === null ? null : parseMetadata(body.metadata)
  const registers = body.registers.finish()
  const signed = await readSignature({ section: body.signature, pcr0: registers.pcr0, digests })
  const facts = {
    sizeBytes,
    version: header.version,
    architecture: header.architecture,
    defaultMemoryBytes: header.defaultMemoryBytes,
    defaultCpus: header.defaultCpus,
    crc32: header.crc32,
    sections: body.sections,
    measurements: { ...registers, pcr8: signed?.pcr8 ?? null },
    metadata,
    signature: signed?.signature ?? null,
  }
  return { ...facts, warnings: listWarnings(facts) }
}

type Body = {
  readonly sections: readonly Section[]
  readonly registers: Registers
  readonly metadata: Uint8Array | null
  readonly signature: Uint8Array | null
  readonly crc: number
}

async function readSections(given: {
  reader: ByteReader
  header: EifHeader
  digests: Digests
  crc: number
}): Promise<Body> {
  const { reader, header, digests } = given
  const registers = createRegisters(digests)
  const sections: Section[] = []
  const kept = { metadata: null as Uint8Array | null, signature: null as Uint8Array | null }
  let crc = given.crc
  for (const place of header.sections) {
    const headerBytes = await reader.take(EIF_SECTION_HEADER_BYTES)
    crc = digests.crc32(headerBytes, crc)
    const section = parseSectionHeader(headerBytes, {
      place,
      before: sections,
      version: header.version,
    })
    if (section.kind === 'metadata' || section.kind === 'signature') {
      const data = await reader.take(section.dataBytes)
      crc = digests.crc32(data, crc)
      kept[section.kind] = data
    } else {
      const add = chooseRegister(registers, section, sections)
      await reader.forEach(section.dataBytes, (piece) => {
        crc = digests.crc32(piece, crc)
        add(piece)
      })
    }
    sections.push(section)
  }
  return { sections, registers, crc, ...kept }
}

/** The first ramdisk boots. The others are the application. */
function chooseRegister(registers: Registers, section: Section, before: readonly Section[]) {
  const application = section.kind === 'ramdisk' && before.some(({ kind }) => kind === 'ramdisk')
  return application ? registers.addApplication : registers.addBoot
}

/** Parsed leniently, because no check depends on the metadata. */
function parseMetadata(bytes: Uint8Array): JsonObject {
  try {
    const value = parseLenientJson(bytes)
    if (isJsonObject(value)) return value
  } catch (error) {
    if (!(error instanceof JsonError)) throw error
  }
  throw new EifError('metadata_malformed', 'expected the metadata to be a JSON object')
}

async function readSignature({
  section,
  pcr0,
  digests,
}: {
  section: Uint8Array | null
  pcr0: Uint8Array
  digests: Digests
}): Promise<{ signature: EifSignature; pcr8: Uint8Array } | null> {
  if (section === null) return null
  const image = parseImageSignature(section)
  await verifyImageSignature(image, pcr0)
  const { der, curve } = image.certificate
  const hash = digests.sha384()
  hash.update(der)
  return {
    signature: { algorithm: curve.name, certificate: der },
    pcr8: extendZero(hash.digest(), digests),
  }
}

function hex32(value: number): string {
  return value.toString(16).padStart(8, '0')
}

/** PCRs of 48 bytes each. */
export type EifMeasurements = {
  /** Kernel, command line and all ramdisks. */
  readonly pcr0: Uint8Array
  /** Kernel, command line and the first ramdisk: the parts that boot. */
  readonly pcr1: Uint8Array
  /** The other ramdisks: the application. If there is only one ramdisk, the hash of no bytes. */
  readonly pcr2: Uint8Array
  /** DER of the signing certificate. Null for an unsigned image, whose PCR8 is zero. */
  readonly pcr8: Uint8Array | null
}

/** The bytes must come in the order of the file. */
type Registers = {
  /** Bytes of the kernel, the command line or the first ramdisk. */
  addBoot(bytes: Uint8Array): void
  /** Bytes of any other ramdisk. */
  addApplication(bytes: Uint8Array): void
  finish(): Omit<EifMeasurements, 'pcr8'>
}

/**
 * Copies the hash for PCR0 as the start of PCR1 when the first application section begins. Boot
 * sections nearly always come earlier, so their bytes are hashed only once.
 */
export function createRegisters(digests: Digests): Registers {
  const image = digests.sha384()
  const application = digests.sha384()
  let boot: RunningHash | null = null
  return {
    addBoot: (bytes) => {
      image.update(bytes)
      boot?.update(bytes)
    },
    addApplication: (bytes) => {
      boot ??= image.copy()
      image.update(bytes)
      application.update(bytes)
    },
    finish: () => ({
      pcr1: extendZero((boot ?? image.copy()).digest(), digests),
      pcr0: extendZero(image.digest(), digests),
      pcr2: extendZero(application.digest(), digests),
    }),
  }
}

/** SHA384(48 zero bytes || digest): the value of a register after one extension. */
export function extendZero(digest: Uint8Array, digests: Digests): Uint8Array {
  const hash = digests.sha384()
  hash.update(new Uint8Array(48))
  hash.update(digest)
  return new Uint8Array(hash.digest())
}

/** The facts about a measured image. */
export type EifReport = {
  readonly sizeBytes: number
  readonly version: number
  readonly architecture: EifHeader['architecture']
  readonly defaultMemoryBytes: bigint
  readonly defaultCpus: bigint
  readonly crc32: number
  /** In the order of the file. */
  readonly sections: readonly Section[]
  readonly measurements: EifMeasurements
  /** Attacker-controlled and not measured. Null without metadata. */
  readonly metadata: JsonObject | null
  /** Null for an unsigned image. */
  readonly signature: EifSignature | null
  readonly warnings: readonly EifWarning[]
}

/** A verified signature: the key of this certificate signed PCR0 of this image. */
type EifSignature = {
  readonly algorithm: 'ES256' | 'ES384' | 'ES512'
  /** DER. Issuer and validity were not checked. */
  readonly certificate: Uint8Array
}

/** A warning about facts that equal measurements do not prove. */
type EifWarning = { readonly code: EifWarningCode; readonly message: string }

type EifWarningCode =
  | 'header_not_measured'
  | 'boundaries_not_measured'
  | 'metadata_not_measured'
  | 'no_metadata'
  | 'no_application'
  | 'certificate_not_judged'
  | 'not_signed'

/** The first two warnings apply to every image. */
export function listWarnings(
  image: Pick<EifReport, 'version' | 'sections' | 'metadata' | 'signature'>,
): readonly EifWarning[] {
  const ramdisks = image.sections.filter(({ kind }) => kind === 'ramdisk').length
  const applying: readonly (EifWarningCode | false)[] = [
    'header_not_measured',
    'boundaries_not_measured',
    image.metadata !== null && 'metadata_not_measured',
    image.metadata === null && image.version >= 4 && 'no_metadata',
    ramdisks === 1 && 'no_application',
    image.signature !== null && 'certificate_not_judged',
    image.signature === null && 'not_signed',
  ]
  return applying
    .filter((code) => code !== false)
    .map((code) => ({ code, message: WARNINGS[code] }))
}

const WARNINGS: Readonly<Record<EifWarningCode, string>> = {
  header_not_measured:
    'The architecture, version, default memory and CPUs in the header are in no measurement.',
  boundaries_not_measured:
    'Sections are measured one after the other without their lengths: ' +
    'bytes moved over a boundary of kernel, command line and first ramdisk, ' +
    'or of two later ramdisks, leave the measurements as they are.',
  metadata_not_measured: 'The metadata is in no measurement: anyone can write anything into it.',
  no_metadata:
    'The image is of version 4 and has no metadata section, as the official tools would write.',
  no_application:
    'There is only one ramdisk, so that PCR2 is the hash of nothing and tells no image from another.',
  certificate_not_judged:
    "The signature is of the certificate's key, but nothing was checked about the certificate " +
    'itself: neither who issued it nor whether it has expired.',
  not_signed: 'The image is not signed; its PCR8 is zero.',
}

type ByteReader = {
  /** Passes the next `length` bytes to `visit` in pieces, as they arrive. Keeps no copy. */
  forEach(length: number, visit: (piece: Uint8Array) => void): Promise<void>
  take(length: number): Promise<Uint8Array>
  expectEnd(): Promise<void>
}

/**
 * Reads `chunks` once, from the start. Throws EifError `source_changed` if the stream is shorter or
 * longer than expected.
 */
export function createByteReader(chunks: AsyncIterator<Uint8Array>): ByteReader {
  let rest: Uint8Array = new Uint8Array()
  const pull = async (): Promise<boolean> => {
    const next = await chunks.next()
    if (next.done === true) return false
    rest = next.value
    return true
  }
  const forEach: ByteReader['forEach'] = async (length, visit) => {
    let left = length
    while (left > 0) {
      if (rest.length === 0) {
        if (!(await pull())) throw new EifError('source_changed', `expected ${left} more bytes`)
        continue
      }
      const piece = rest.subarray(0, left)
      rest = rest.subarray(piece.length)
      left -= piece.length
      visit(piece)
    }
  }
  return {
    forEach,
    take: async (length) => {
      const pieces: Uint8Array[] = []
      await forEach(length, (piece) => pieces.push(piece.slice()))
      return concatBytes(...pieces)
    },
    expectEnd: async () => {
      while (rest.length === 0) if (!(await pull())) return
      throw new EifError('source_changed', 'expected no more bytes')
    },
  }
}
