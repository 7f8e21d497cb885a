import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { encodeHex } from '#attestation/bytes.ts'
import { EifError } from '#attestation/eif/eif-error.ts'
import { BuildError } from '../build-error.ts'
import { BootError } from './boot-error.ts'
import { type Accelerator, QEMU } from './machine.ts'
import {
  type BootStage,
  type FirstCompletion,
  startStage,
  verifyFirstCompletion,
} from './run-boot.ts'

/**
 * `npm run image:boot`: see README.md in this folder. Exit codes: 0 for a verified completion, 1
 * without one, 2 for wrong usage.
 */
const USAGE = `npm run image:boot -- [options]

  --accel tcg|kvm    emulate every instruction, or use the processor's (whichever works)
  --packages DIR     take all packages of the image from here; nothing is fetched
`

await run(process.argv.slice(2)).catch((error: unknown) => {
  const isOurs =
    error instanceof BootError || error instanceof BuildError || error instanceof EifError
  if (!isOurs) throw error
  const isUsage = error.code === 'options'
  process.stderr.write(`${error.message}\n${isUsage ? `\n${USAGE}` : ''}`)
  process.exitCode = isUsage ? 2 : 1
})

async function run(words: readonly string[]): Promise<void> {
  const options = parseBootOptions(words)
  process.stdout.write('Building a development image and booting it ...\n')
  await using ended = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-boot-'))
  ended.defer(() => rm(folder, { recursive: true, force: true }))
  endOnSignals(folder)
  const stage = await startStage({ ...options, folder })
  ended.defer(() => stage.stop())
  process.stdout.write(formatBoot(stage, await verifyFirstCompletion(stage)))
}

/** Removes the folder on these signals. All started programs end with this process. */
function endOnSignals(folder: string): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => {
      rmSync(folder, { recursive: true, force: true })
      process.exit(1)
    })
}

function parseBootOptions(words: readonly string[]): {
  readonly accelerator: Accelerator | null
  readonly packagesFolder: string | null
} {
  const { accel = null, packages = null } = parseWords(words)
  if (accel !== null && accel !== 'tcg' && accel !== 'kvm')
    throw new BootError('options', '--accel: expected tcg or kvm')
  return { accelerator: accel, packagesFolder: packages }
}

function parseWords(words: readonly string[]) {
  const text = { type: 'string' } as const
  try {
    return parseArgs({ args: [...words], options: { accel: text, packages: text }, strict: true })
      .values
  } catch (error) {
    throw new BootError('options', error instanceof Error ? error.message : 'unreadable')
  }
}

function formatBoot(stage: BootStage, { hash, report, answeredAtMs }: FirstCompletion): string {
  const { machine, accelerator, measurements, readyAtMs } = stage.enclave
  const since = (atMs: number) => `${((atMs - machine.startedAtMs) / 1000).toFixed(1)} s`
  const passed = report.checks.filter(({ outcome }) => outcome === 'passed').length
  return `
Booted ${stage.image.report.eifBytes} bytes in ${QEMU} (${accelerator}), from its start:

  kernel runs                 ${since(machine.kernelAtMs)}
  enclave ready               ${since(readyAtMs)}
  gateway serves              ${since(stage.gatewayAtMs)}
  first verified completion   ${since(answeredAtMs)}

  ${hash}
  ${report.verdict.toUpperCase()}: ${passed} checks passed, with the measurements of this image and its software NSM's root

  PCR0  ${encodeHex(measurements.pcr0)}
  PCR1  ${encodeHex(measurements.pcr1)}
  PCR2  ${encodeHex(measurements.pcr2)}

The security module was simulated: this shows that the image works, and nothing of who runs it.
`
}
