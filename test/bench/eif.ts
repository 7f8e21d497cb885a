import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { measureEif } from '#attestation/eif/measure-eif.ts'
import { NODE_DIGESTS, readFileChunks } from '#src/cli/measure-image.ts'
import { buildImage, CMDLINE, METADATA, TYPE } from '../attestation/eif/image-builder.ts'

/**
 * Measures an image with the proportions of a real one, and lets `sha384sum` read the same bytes,
 * in turns.
 */
const KERNEL_BYTES = 12_000_000
const BOOT_BYTES = 3_000_000
const APPLICATION_BYTES = 185_000_000
const ROUNDS = 7

type Cost = { readonly wallMs: number; readonly cpuMs: number }

const folder = await mkdtemp(join(tmpdir(), 'affidavit-bench-eif-'))
try {
  const path = join(folder, 'image.eif')
  const sizeBytes = await writeImage(path)
  const costs = { sum: [] as Cost[], eif: [] as Cost[] }
  for (let round = 0; round < ROUNDS; round++) {
    costs.sum.push(runSha384sum(path))
    costs.eif.push(await runMeasureEif(path, sizeBytes))
  }
  const [sum, eif] = [middle(costs.sum), middle(costs.eif)]
  console.log(`image of ${Math.round(sizeBytes / 1e6)} MB, median of ${ROUNDS} runs in turn`)
  print('sha384sum', sum, sizeBytes)
  print('measureEif', eif, sizeBytes)
  const times = (value: number) => `${value.toFixed(2)} ×`
  console.log(
    `measureEif : sha384sum   wall ${times(eif.wallMs / sum.wallMs)}   cpu ${times(eif.cpuMs / sum.cpuMs)}`,
  )
  console.log(
    '(the application is hashed for PCR0 and again for PCR2, and everything goes through CRC-32)',
  )
} finally {
  await rm(folder, { recursive: true })
}

async function writeImage(path: string): Promise<number> {
  const image = buildImage({
    sections: [
      { type: TYPE.kernel, data: randomBytes(KERNEL_BYTES) },
      CMDLINE,
      METADATA,
      { type: TYPE.ramdisk, data: randomBytes(BOOT_BYTES) },
      { type: TYPE.ramdisk, data: randomBytes(APPLICATION_BYTES) },
    ],
  })
  await using file = await open(path, 'wx')
  await file.writeFile(image)
  return image.length
}

/** The shell's own `time` gives the processor time of this one command. */
function runSha384sum(path: string): Cost {
  const started = performance.now()
  const { status, stderr } = spawnSync(
    '/bin/bash',
    ['-c', 'time -p sha384sum "$0" > /dev/null', path],
    {
      encoding: 'utf8',
    },
  )
  const wallMs = performance.now() - started
  const [user, system] = ['user', 'sys'].map((name) =>
    Number(new RegExp(`^${name} (.*)$`, 'm').exec(stderr)?.[1]),
  )
  if (status !== 0 || user === undefined || system === undefined)
    throw new Error(`expected bash and sha384sum (GNU coreutils): ${stderr}`)
  return { wallMs, cpuMs: (user + system) * 1000 }
}

async function runMeasureEif(path: string, sizeBytes: number): Promise<Cost> {
  await using file = await open(path)
  const cpu = process.cpuUsage()
  const started = performance.now()
  await measureEif({ sizeBytes, chunks: readFileChunks(file) }, NODE_DIGESTS)
  const wallMs = performance.now() - started
  const { user, system } = process.cpuUsage(cpu)
  return { wallMs, cpuMs: (user + system) / 1000 }
}

function middle(costs: readonly Cost[]): Cost {
  const median = (values: readonly number[]) =>
    values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0
  return {
    wallMs: median(costs.map(({ wallMs }) => wallMs)),
    cpuMs: median(costs.map(({ cpuMs }) => cpuMs)),
  }
}

function print(name: string, { wallMs, cpuMs }: Cost, sizeBytes: number): void {
  const rate = Math.round(sizeBytes / 1e3 / wallMs)
  console.log(
    `${name.padEnd(12)} ${wallMs.toFixed(0).padStart(6)} ms wall ${cpuMs.toFixed(0).padStart(6)} ms cpu  ${rate} MB/s`,
  )
}
