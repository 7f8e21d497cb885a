import { JsonError } from '../json/json-error.ts'
import { parseLenientJson } from '../json/parse-lenient.ts'
import { isJsonObject, type JsonObject } from '../json/value.ts'
import { type ByteReader, createByteReader } from './byte-reader.ts'
import { type Digests, PORTABLE_DIGESTS } from './digests.ts'
import { EifError } from './eif-error.ts'
import {
  EIF_CRC_OFFSET,
  EIF_HEADER_BYTES,
  EIF_SECTION_HEADER_BYTES,
  type EifHeader,
  parseEifHeader,
} from './header.ts'
import { createRegisters, type EifMeasurements, extendZero, type Registers } from './registers.ts'
import { type EifReport, type EifSignature, listWarnings } from './report.ts'
import { checkComplete, parseSectionHeader, type Section } from './section.ts'
import { parseImageSignature, verifyImageSignature } from './signature.ts'

/** An image: how many bytes it has, and the bytes from the first to the last in chunks of any size. */
export type EifSource = {
  readonly sizeBytes: number
  readonly chunks: AsyncIterable<Uint8Array>
}

/**
 * Gives the measurements that a Nitro enclave booted from this image shows in PCR0, 1, 2 and 8, and what the image
 * says of itself. Reads the bytes once and holds no more than a chunk of them, besides metadata and signature. The
 * image is attacker-controlled: every byte must be accounted for, and a signature must be right, or EifError is thrown.
 * Errors of `chunks` pass through. Does not prove what the image does, who made it, or that an enclave runs it.
 */
export async function measureEif(source: EifSource, digests: Digests = PORTABLE_DIGESTS): Promise<EifReport> {
  const iterator = source.chunks[Symbol.asyncIterator]()
  try {
    return await measure(createByteReader(iterator), source.sizeBytes, digests)
  } finally {
    await iterator.return?.()
  }
}

async function measure(reader: ByteReader, sizeBytes: number, digests: Digests): Promise<EifReport> {
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
    measurements: { ...registers, pcr8: signed?.pcr8 ?? null } satisfies EifMeasurements,
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
    const section = parseSectionHeader(headerBytes, { place, before: sections, version: header.version })
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

/** The first ramdisk boots, the others are the application. */
function chooseRegister(registers: Registers, section: Section, before: readonly Section[]) {
  const application = section.kind === 'ramdisk' && before.some(({ kind }) => kind === 'ramdisk')
  return application ? registers.addApplication : registers.addBoot
}

/** Leniently, since nothing rests on it: an odd number in the metadata is no reason to refuse an image. */
function parseMetadata(bytes: Uint8Array): JsonObject {
  try {
    const value = parseLenientJson(bytes)
    if (isJsonObject(value)) return value
  } catch (error) {
    if (!(error instanceof JsonError)) throw error
  }
  throw new EifError('metadata_malformed', 'expected the metadata to be a JSON object')
}

async function readSignature(given: {
  section: Uint8Array | null
  pcr0: Uint8Array
  digests: Digests
}): Promise<{ signature: EifSignature; pcr8: Uint8Array } | null> {
  const { section, pcr0, digests } = given
  if (section === null) return null
  const image = parseImageSignature(section)
  await verifyImageSignature(image, pcr0)
  const { der, curve } = image.certificate
  const hash = digests.sha384()
  hash.update(der)
  return { signature: { algorithm: curve.name, certificate: der }, pcr8: extendZero(hash.digest(), digests) }
}

function hex32(value: number): string {
  return value.toString(16).padStart(8, '0')
}
