import type { BuiltImage, Dependency, RamdiskSize } from './built-image.ts'
import type { ImageOptions } from './options.ts'

/** Most bytes that an image should have. */
export const IMAGE_BYTES_AIM = 80_000_000

/** Gives what an operator must know of an image before it is published. */
export function listWarnings(
  options: Pick<ImageOptions, 'isDevelopment' | 'kernel' | 'nsmModuleFile'>,
  uncommitted: readonly string[],
): readonly string[] {
  const { isDevelopment, kernel, nsmModuleFile } = options
  const warnings: readonly (string | false)[] = [
    isDevelopment && 'a development image: its security module is simulated and proves nothing',
    !isDevelopment && kernel === null && nsmModuleFile === null && NO_DRIVER,
    uncommitted.length > 0 &&
      `nobody else can rebuild it: ${uncommitted.length} uncommitted files that it is made of, such as ${uncommitted.slice(0, 3).join(', ')}`,
  ]
  return warnings.filter((warning) => warning !== false)
}

const NO_DRIVER =
  "no driver for /dev/nsm, and Debian's kernel has none: the verifier will end at its start. Give --nsm-module with a driver for this kernel, or AWS's kernel, init program and driver with --kernel, --cmdline-file, --init and --nsm-module"

/** Gives the report of a build as text for a terminal. */
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
