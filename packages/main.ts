import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { BuildError } from '#enclave/image/build-error.ts'
import { buildPackages, type PackageReport } from './build-packages.ts'

const ROOT = join(import.meta.dirname, '..')

const USAGE = `npm run package -- [options]

  --output DIR   where the packages go (build/packages)
`

/**
 * `npm run package`: see README.md in this folder. Exit codes: 0 for success, 1 when the packages
 * cannot be built, 2 for wrong usage.
 */
await run(process.argv.slice(2)).catch((error: unknown) => {
  if (!(error instanceof BuildError)) throw error
  const isUsage = error.code === 'options'
  process.stderr.write(`${error.message}\n${isUsage ? `\n${USAGE}` : ''}`)
  process.exitCode = isUsage ? 2 : 1
})

async function run(words: readonly string[]): Promise<void> {
  const { help = false, output = join(ROOT, 'build/packages') } = parseWords(words)
  process.stdout.write(help ? USAGE : formatReport(await buildPackages(ROOT, output), output))
}

function parseWords(words: readonly string[]) {
  const options = { output: { type: 'string' }, help: { type: 'boolean' } } as const
  try {
    return parseArgs({ args: [...words], options, strict: true }).values
  } catch (error) {
    throw new BuildError('options', error instanceof Error ? error.message : 'unreadable')
  }
}

function formatReport({ packages, commit, uncommitted }: PackageReport, output: string): string {
  const lines = packages.map(
    ({ file, bytes, unpackedBytes, sha256 }) =>
      `${file}  ${kilobytes(bytes)} packed, ${kilobytes(unpackedBytes)} unpacked  SHA-256 ${sha256}`,
  )
  const warning =
    uncommitted.length === 0
      ? []
      : [
          `these files are not committed, so others cannot build the same packages: ${uncommitted.join(', ')}`,
        ]
  return `${[`in ${output}, of commit ${commit}`, ...lines, ...warning].join('\n')}\n`
}

function kilobytes(bytes: number): string {
  return `${Math.ceil(bytes / 1000)} kB`
}
