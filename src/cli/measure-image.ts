import { createHash } from 'node:crypto'
import { type FileHandle, open } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import { encodeHex } from '#attestation/bytes.ts'
import type { Digests } from '#attestation/eif/digests.ts'
import { EifError } from '#attestation/eif/eif-error.ts'
import { type EifReport, measureEif } from '#attestation/eif/measure-eif.ts'
import { printable } from '#attestation/report/printable.ts'
import { CliError, EXIT_CODES } from './faults.ts'

/** Throws CliError if the file cannot be read. */
export async function reportImage(
  image: string,
  { json = false }: { readonly json?: boolean },
): Promise<{ readonly output: string; readonly isValid: boolean }> {
  const result = await measureFile(image)
  return {
    output: `${json ? formatJson(result) : formatText(image, result)}\n`,
    isValid: result.valid,
  }
}

type MeasureResult =
  | { readonly valid: true; readonly report: EifReport }
  | { readonly valid: false; readonly code: string; readonly message: string }

async function measureFile(path: string): Promise<MeasureResult> {
  try {
    await using file = await open(path)
    const status = await file.stat()
    if (!status.isFile())
      throw new CliError(`expected a file: ${printable(path)}`, EXIT_CODES.usage)
    const report = await measureEif(
      { sizeBytes: status.size, chunks: readFileChunks(file) },
      NODE_DIGESTS,
    )
    return { valid: true, report }
  } catch (error) {
    if (error instanceof EifError) return { valid: false, code: error.code, message: error.message }
    if (error instanceof Error && 'syscall' in error)
      throw new CliError(`cannot read ${printable(path)}: ${error.message}`, EXIT_CODES.unavailable)
    throw error
  }
}

/** u64 values are decimal text, because a JSON reader may store numbers as doubles. */
function formatJson(result: MeasureResult): string {
  const { valid } = result
  if (!valid)
    return JSON.stringify({ valid, code: result.code, message: result.message, facts: null })
  const { report } = result
  const { pcr0, pcr1, pcr2, pcr8 } = hexMeasurements(report)
  const facts = {
    size_bytes: report.sizeBytes,
    version: report.version,
    architecture: report.architecture,
    default_memory_bytes: String(report.defaultMemoryBytes),
    default_cpus: String(report.defaultCpus),
    crc32: formatCrc(report),
    sections: report.sections.map(({ kind, offset, dataBytes }) => ({
      kind,
      offset,
      size_bytes: dataBytes,
    })),
    measurements: { pcr0, pcr1, pcr2, pcr8 },
    signature: report.signature && describeSignature(report.signature),
    metadata: report.metadata,
    warnings: report.warnings,
  }
  return JSON.stringify({ valid, code: null, message: null, facts })
}

function formatText(path: string, result: MeasureResult): string {
  if (!result.valid)
    return `${printable(path)}: NOT MEASURED\n  ${result.code}: ${printable(result.message)}`
  const { report } = result
  const { pcr0, pcr1, pcr2, pcr8 } = hexMeasurements(report)
  const signature = report.signature && describeSignature(report.signature)
  const lines = [
    `${printable(path)}: ${report.sizeBytes} bytes, EIF version ${report.version}, ${report.architecture}`,
    `default memory ${report.defaultMemoryBytes} bytes, default CPUs ${report.defaultCpus}, ` +
      `CRC-32 ${formatCrc(report)}`,
    '',
    'Measurements (SHA-384)',
    `  PCR0  ${pcr0}`,
    `  PCR1  ${pcr1}`,
    `  PCR2  ${pcr2}`,
    `  PCR8  ${pcr8 ?? 'zero: the image is not signed'}`,
    '',
    'Sections                 offset          bytes',
    ...report.sections.map(
      ({ kind, offset, dataBytes }) =>
        `  ${kind.padEnd(10)} ${String(offset).padStart(18)} ${String(dataBytes).padStart(14)}`,
    ),
    ...(signature === null
      ? []
      : [
          '',
          `Signature ${signature.algorithm}, certificate SHA-256 ${signature.certificate_sha256}`,
        ]),
    ...(report.metadata === null ? [] : ['', 'Metadata', ...indentJson(report.metadata)]),
    '',
    'What the measurements do not say',
    ...report.warnings.map(({ message }) => `  - ${message}`),
  ]
  return lines.join('\n')
}

function hexMeasurements({ measurements: { pcr0, pcr1, pcr2, pcr8 } }: EifReport) {
  const [hex0, hex1, hex2] = [pcr0, pcr1, pcr2].map(encodeHex)
  return { pcr0: hex0, pcr1: hex1, pcr2: hex2, pcr8: pcr8 && encodeHex(pcr8) }
}

function describeSignature({ algorithm, certificate }: NonNullable<EifReport['signature']>) {
  return { algorithm, certificate_sha256: createHash('sha256').update(certificate).digest('hex') }
}

function formatCrc({ crc32 }: EifReport): string {
  return crc32.toString(16).padStart(8, '0')
}

function indentJson(value: unknown): readonly string[] {
  const lines = JSON.stringify(value, null, 2).split('\n')
  return lines.map((line) => `  ${printable(line)}`)
}

/** A chunk of this size stays in the processor's cache for several digests. */
export const FILE_CHUNK_BYTES = 131_072

/**
 * Reads one chunk ahead of the caller. A chunk's memory is used again when the caller asks for the
 * next chunk, so the caller must copy bytes that are needed longer.
 */
export async function* readFileChunks(
  file: FileHandle,
): AsyncGenerator<Uint8Array, void, undefined> {
  const read = async (buffer: Uint8Array, position: number) => {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position)
    return buffer.subarray(0, bytesRead)
  }
  let [current, spare] = [new Uint8Array(FILE_CHUNK_BYTES), new Uint8Array(FILE_CHUNK_BYTES)]
  let position = 0
  let pending = read(current, position)
  try {
    while (true) {
      const chunk = await pending
      if (chunk.length === 0) return
      position += chunk.length
      ;[current, spare] = [spare, current]
      pending = read(current, position)
      yield chunk
    }
  } finally {
    // The file must not be closed while a read is running, even if the caller stops early.
    await pending.catch(() => undefined)
  }
}

/** OpenSSL's SHA-384 and zlib's CRC-32. */
export const NODE_DIGESTS: Digests = { sha384: () => createHash('sha384'), crc32 }
