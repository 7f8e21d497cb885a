import { createHash } from 'node:crypto'
import { open } from 'node:fs/promises'
import type { Command } from 'commander'
import { encodeHex } from '../../../attestation/bytes.ts'
import { EifError } from '../../../attestation/eif/eif-error.ts'
import { measureEif } from '../../../attestation/eif/measure-eif.ts'
import type { EifReport } from '../../../attestation/eif/report.ts'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import { NODE_DIGESTS, readFileChunks } from '../measure-image.ts'
import { printable } from '../printable.ts'

/** Adds `measure IMAGE.eif [--json]`. Exit code 0 for an image that can be measured, 1 for another, 2 for usage. */
export function registerMeasure(program: Command): void {
  program
    .command('measure')
    .summary('compute the measurements of an enclave image')
    .description(
      'Compute PCR0, PCR1, PCR2 and PCR8 of a Nitro enclave image file. An image with a byte that no section accounts for, a wrong checksum or a wrong signature is refused.',
    )
    .argument('<image>', 'enclave image file (.eif)')
    .option('--json', 'print one JSON object {valid, code, message, facts}')
    .action(async (image: string, options: { readonly json?: boolean }) => {
      const result = await measureFile(image)
      process.stdout.write(`${options.json ? formatJson(result) : formatText(image, result)}\n`)
      process.exitCode = result.valid ? EXIT_CODES.done : EXIT_CODES.failed
    })
}

type MeasureResult =
  | { readonly valid: true; readonly report: EifReport }
  | { readonly valid: false; readonly code: string; readonly message: string }

async function measureFile(path: string): Promise<MeasureResult> {
  try {
    await using file = await open(path)
    const status = await file.stat()
    if (!status.isFile()) throw new CliError(`expected a file: ${printable(path)}`, EXIT_CODES.usage)
    const report = await measureEif({ sizeBytes: status.size, chunks: readFileChunks(file) }, NODE_DIGESTS)
    return { valid: true, report }
  } catch (error) {
    if (error instanceof EifError) return { valid: false, code: error.code, message: error.message }
    if (error instanceof Error && 'syscall' in error)
      throw new CliError(`cannot read ${printable(path)}: ${error.message}`, EXIT_CODES.usage)
    throw error
  }
}

/** u64 values as decimal text, since a JSON reader may hold numbers as doubles. */
function formatJson(result: MeasureResult): string {
  const { valid } = result
  if (!valid) return JSON.stringify({ valid, code: result.code, message: result.message, facts: null })
  const { report } = result
  const { pcr0, pcr1, pcr2, pcr8 } = report.measurements
  const facts = {
    size_bytes: report.sizeBytes,
    version: report.version,
    architecture: report.architecture,
    default_memory_bytes: String(report.defaultMemoryBytes),
    default_cpus: String(report.defaultCpus),
    crc32: formatCrc(report),
    sections: report.sections.map(({ kind, offset, dataBytes }) => ({ kind, offset, size_bytes: dataBytes })),
    measurements: {
      pcr0: encodeHex(pcr0),
      pcr1: encodeHex(pcr1),
      pcr2: encodeHex(pcr2),
      pcr8: pcr8 === null ? null : encodeHex(pcr8),
    },
    signature: report.signature === null ? null : describeSignature(report.signature),
    metadata: report.metadata,
    warnings: report.warnings,
  }
  return JSON.stringify({ valid, code: null, message: null, facts })
}

function formatText(path: string, result: MeasureResult): string {
  if (!result.valid) return `${printable(path)}: NOT MEASURED\n  ${result.code}: ${printable(result.message)}`
  const { report } = result
  const { pcr0, pcr1, pcr2, pcr8 } = report.measurements
  const signature = report.signature === null ? null : describeSignature(report.signature)
  const lines = [
    `${printable(path)}: ${report.sizeBytes} bytes, EIF version ${report.version}, ${report.architecture}`,
    `default memory ${report.defaultMemoryBytes} bytes, default CPUs ${report.defaultCpus}, CRC-32 ${formatCrc(report)}`,
    '',
    'Measurements (SHA-384)',
    `  PCR0  ${encodeHex(pcr0)}`,
    `  PCR1  ${encodeHex(pcr1)}`,
    `  PCR2  ${encodeHex(pcr2)}`,
    `  PCR8  ${pcr8 === null ? 'zero: the image is not signed' : encodeHex(pcr8)}`,
    '',
    'Sections                 offset          bytes',
    ...report.sections.map(
      ({ kind, offset, dataBytes }) =>
        `  ${kind.padEnd(10)} ${String(offset).padStart(18)} ${String(dataBytes).padStart(14)}`,
    ),
  ]
  if (signature !== null)
    lines.push('', `Signature ${signature.algorithm}, certificate SHA-256 ${signature.certificate_sha256}`)
  if (report.metadata !== null)
    lines.push('', 'Metadata', ...indent(JSON.stringify(report.metadata, null, 2).split('\n').map(printable)))
  lines.push(
    '',
    'What the measurements do not say',
    ...report.warnings.map(({ message }) => `  - ${message}`),
  )
  return lines.join('\n')
}

function describeSignature({ algorithm, certificate }: NonNullable<EifReport['signature']>) {
  return { algorithm, certificate_sha256: createHash('sha256').update(certificate).digest('hex') }
}

function formatCrc({ crc32 }: EifReport): string {
  return crc32.toString(16).padStart(8, '0')
}

function indent(lines: readonly string[]): readonly string[] {
  return lines.map((line) => `  ${line}`)
}
