import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Release } from '#attestation/release/release.ts'
import type { CompressedRamdisk, RamdiskSize } from './cpio.ts'
import type { ImageOptions } from './options.ts'

/** An image should not be larger than this, bytes. */
export const IMAGE_BYTES_AIM = 80_000_000

export function listImageWarnings(
  options: Pick<ImageOptions, 'isDevelopment' | 'kernel' | 'nsmModuleFile'>,
  uncommitted: readonly string[],
): readonly string[] {
  const { isDevelopment, kernel, nsmModuleFile } = options
  const warnings: readonly (string | false)[] = [
    isDevelopment && 'a development image: its security module is simulated and proves nothing',
    !isDevelopment && kernel === null && nsmModuleFile === null && NO_DRIVER,
    uncommitted.length > 0 &&
      `others cannot rebuild it: it contains ${uncommitted.length} uncommitted files, ` +
        `such as ${uncommitted.slice(0, 3).join(', ')}`,
  ]
  return warnings.filter((warning) => warning !== false)
}

const NO_DRIVER =
  "no driver for /dev/nsm, and Debian's kernel has none: the verifier will end at its start. " +
  "Give --nsm-module with a driver for this kernel, or AWS's kernel, init program and driver " +
  'with --kernel, --cmdline-file, --init and --nsm-module'

export function formatReport({ folder, measurements, release, report }: BuiltImage): string {
  const { eifBytes, kernelBytes, boot, application, dependencies, sources } = report
  const aim = eifBytes <= IMAGE_BYTES_AIM ? 'within' : 'OVER'
  return [
    `Enclave image in ${folder} (commit ${sources.commit})`,
    '',
    `  affidavit.eif              ${megabytes(eifBytes)}, ${aim} the aim of ${megabytes(IMAGE_BYTES_AIM)}`,
    `  kernel                     ${megabytes(kernelBytes)}`,
    `  boot.cpio.gz               ${formatRamdisk(boot)}`,
    `  application.cpio.gz        ${formatRamdisk(application)}`,
    `  of that, our sources       ${megabytes(sources.bytes)} in ${sources.files} files`,
    '',
    `${dependencies.length} dependencies:`,
    ...dependencies.map(formatDependency),
    '',
    `  PCR0  ${measurements[0]}`,
    `  PCR1  ${measurements[1]}`,
    `  PCR2  ${measurements[2]}`,
    ...(release.measurements.PCR8 === undefined ? [] : [`  PCR8  ${release.measurements.PCR8}`]),
    `  boot configuration  ${release.configuration}`,
    ...report.warnings.map((warning) => `\nWARNING: ${warning}`),
    '',
  ].join('\n')
}

function formatRamdisk({ bytes, compressedBytes, files }: RamdiskSize): string {
  return `${megabytes(compressedBytes)} compressed, ${megabytes(bytes)} unpacked, ${files} entries`
}

function formatDependency({ kind, name, version, bytes, why }: Dependency): string {
  return `  ${`${name} ${version} (${kind})`.padEnd(58)} ${megabytes(bytes).padStart(9)}  ${why}`
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_000_000).toFixed(bytes < 995_000 ? 2 : 1)} MB`
}

export type BuiltImage = {
  readonly folder: string
  readonly eifPath: string
  readonly kernelPath: string
  readonly cmdline: string
  readonly bootRamdiskPath: string
  readonly applicationRamdiskPath: string
  /** SHA-384 as hex: PCR0, 1 and 2. */
  readonly measurements: { readonly 0: string; readonly 1: string; readonly 2: string }
  /** The release payload in `measurements.json`, ready to be signed. */
  readonly release: Release
  readonly report: ImageReport
}

export type Dependency = {
  readonly kind: 'runtime' | 'npm' | 'debian'
  readonly name: string
  readonly version: string
  readonly why: string
  readonly bytes: number
}

type ImageReport = {
  readonly eifBytes: number
  readonly kernelBytes: number
  readonly boot: RamdiskSize
  readonly application: RamdiskSize
  readonly dependencies: readonly Dependency[]
  readonly sources: { readonly files: number; readonly bytes: number; readonly commit: string }
  /** Why others cannot rebuild this image, or for which use the image is not suitable. */
  readonly warnings: readonly string[]
}

type FinishedImage = {
  readonly eif: Uint8Array
  readonly kernel: Uint8Array
  readonly cmdline: string
  readonly boot: CompressedRamdisk
  readonly application: CompressedRamdisk
  readonly release: Release
  readonly dependencies: ImageReport['dependencies']
  readonly sources: ImageReport['sources']
  readonly warnings: ImageReport['warnings']
}

/**
 * Replaces the files of an earlier build in `folder`. Throws errors from the file system unchanged.
 */
export async function writeImage(folder: string, image: FinishedImage): Promise<BuiltImage> {
  const { release, cmdline, dependencies, sources, warnings } = image
  const report: ImageReport = {
    eifBytes: image.eif.length,
    kernelBytes: image.kernel.length,
    boot: image.boot.size,
    application: image.application.size,
    dependencies,
    sources,
    warnings,
  }
  const built: BuiltImage = {
    folder,
    eifPath: join(folder, 'affidavit.eif'),
    kernelPath: join(folder, 'kernel'),
    cmdline,
    bootRamdiskPath: join(folder, 'boot.cpio.gz'),
    applicationRamdiskPath: join(folder, 'application.cpio.gz'),
    measurements: {
      0: release.measurements.PCR0,
      1: release.measurements.PCR1,
      2: release.measurements.PCR2,
    },
    release,
    report,
  }
  await mkdir(folder, { recursive: true })
  await Promise.all([
    writeFile(built.eifPath, image.eif),
    writeFile(built.kernelPath, image.kernel),
    writeFile(built.bootRamdiskPath, image.boot.bytes),
    writeFile(built.applicationRamdiskPath, image.application.bytes),
    writeFile(join(folder, 'measurements.json'), writeJson(release)),
    writeFile(join(folder, 'report.json'), writeJson({ ...report, cmdline })),
  ])
  return built
}

function writeJson(value: object): string {
  return `${JSON.stringify(value, null, 2)}\n`
}
