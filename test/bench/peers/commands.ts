import { spawn, spawnSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { makeDataFolder } from '../../support/affidavit.ts'
import { findMachineNode } from '../../support/machine-node.ts'
import { measureBundles } from '../bundles.ts'
import { wordsOfVerify } from '../verify-words.ts'
import { type Figures, median } from './table.ts'

const ROOT = join(import.meta.dirname, '../../..')
const VERIFY_ROUNDS = 9
const BUNDLE_ROUNDS = 100
const STARTS = 3
const START_TIMEOUT_MS = 120_000

/** `affidavit verify` of a bundle from the shell: from the start of its process to the end. */
export async function measureVerify(): Promise<Figures> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-bench-verify-'))
  try {
    const words = wordsOfVerify(folder)
    const once = () => {
      const start = performance.now()
      const main = join(ROOT, 'src/cli/main.ts')
      const { status, stderr } = spawnSync(process.execPath, [main, ...words], {
        env: { PATH: process.env.PATH, HOME: process.env.HOME },
        encoding: 'utf8',
      })
      if (status !== 0) throw new Error(`affidavit verify: ${stderr}`)
      return (performance.now() - start) / 1_000
    }
    // The first run fills the system's file cache.
    once()
    return { 'verify-command': median(Array.from({ length: VERIFY_ROUNDS }, once)) }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** `npm start` until it is ready, in a folder where it was started before. */
export async function measureStart(): Promise<Figures> {
  const machine = findMachineNode()
  if (machine === null) return { start: 'there is no npm' }
  const dataFolder = await makeDataFolder()
  try {
    await timeStart(dataFolder, machine.path)
    const took: number[] = []
    while (took.length < STARTS) took.push(await timeStart(dataFolder, machine.path))
    return { start: median(took) }
  } finally {
    await rm(dataFolder, { recursive: true, force: true })
  }
}

async function timeStart(dataFolder: string, path: string): Promise<number> {
  const start = performance.now()
  // With the checkout's Node.js: npm puts the checkout's programs before the machine's.
  const child = spawn('npm', ['start'], {
    cwd: ROOT,
    env: {
      PATH: [join(ROOT, 'node_modules/.bin'), path].join(delimiter),
      HOME: process.env.HOME,
      PORT: '0',
      CHAIN_PORT: '0',
      DATA_DIR: dataFolder,
      LOG_LEVEL: 'warn',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  const { promise: ready, resolve, reject } = Promise.withResolvers<number>()
  const timer = setTimeout(() => reject(new Error(`not ready: ${output}`)), START_TIMEOUT_MS)
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text
      if (output.includes('Affidavit is ready')) resolve((performance.now() - start) / 1_000)
    })
  const ended = new Promise<void>((done) => {
    child.on('close', () => {
      reject(new Error(`npm start ended: ${output}`))
      done()
    })
  })
  try {
    return await ready
  } finally {
    clearTimeout(timer)
    child.kill('SIGINT')
    await ended
  }
}

/** Verifying a bundle cold, as a multiple of its signatures alone. */
export async function measureEvidence(): Promise<Figures> {
  return { 'bundle-cold': await measureBundles(BUNDLE_ROUNDS) }
}
