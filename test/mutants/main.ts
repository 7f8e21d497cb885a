import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { roomOf } from '../house/import-rules.ts'
import { Checkout } from './checkout.ts'
import { whyEquivalent } from './equivalent.ts'
import { listMutants, type Mutant } from './operators.ts'
import { findReachingTests } from './reach.ts'

const USAGE = `npm run test:mutants -- [--in FOLDER …] [--count N] [--seed N] [--nearest N]

Seeds N faults (300) by rule, drawn by a seed (1) over all rooms or those of --in, runs the tests of
npm test that reach each, the nearest first, and prints what survived. --nearest N: at most N test
files a fault.`

const ROOT = path.join(import.meta.dirname, '../..')
const SOURCES = /^(?:attestation|audit|client|enclave|packages|src)\/.*\.tsx?$/
/** Programs are run by the slow set, and examples by their readers. */
const NOT_SEEDED = /(?:^|\/)main\.ts$|^client\/examples\/|^src\/local\/|^enclave\/image\/boot\//
/** A run that takes longer hangs. */
const LIMIT_MS = { run: 60_000, file: 10_000 }

/** Whether a test file passes in a copy of the project without any fault. */
const isTrusted = new Map<string, boolean>()

const { values } = parseArgs({
  options: {
    in: { type: 'string', multiple: true },
    count: { type: 'string', default: '300' },
    seed: { type: 'string', default: '1' },
    nearest: { type: 'string' },
    workers: { type: 'string', default: String(availableParallelism()) },
    help: { type: 'boolean' },
  },
})
if (values.help === true) console.log(USAGE)
else process.exitCode = await seedFaults()

type Outcome = { readonly mutant: Mutant; readonly foundBy: string | null }

/** Resolves with the exit code: 1 when a fault survived. */
async function seedFaults(): Promise<number> {
  const files = execFileSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' })
    .split('\n')
    .filter((file) => file !== '' && existsSync(path.join(ROOT, file)))
  const tests = files.filter(
    (file) => /\.test\.ts$/.test(file) && !/\.(slow|nightly)\.test\.ts$/.test(file),
  )
  const reaching = findReachingTests(ROOT, tests)
  const queue = drawMutants(files)
  console.log(`${queue.length} faults, ${tests.length} test files`)
  const folder = mkdtempSync(path.join(tmpdir(), 'affidavit-mutants-'))
  const outcomes: Outcome[] = []
  const work = async (name: string) => {
    const checkout = new Checkout(ROOT, path.join(folder, name))
    try {
      for (let mutant = queue.pop(); mutant !== undefined; mutant = queue.pop()) {
        const own = (reaching.get(mutant.file) ?? []).slice(
          0,
          Number(values.nearest ?? tests.length),
        )
        const foundBy = await tryInSteps(checkout, mutant, own)
        outcomes.push({ mutant, foundBy })
        console.log(`${outcomes.length} ${describe(mutant)}: ${foundBy ?? 'SURVIVED'}`)
      }
    } finally {
      checkout.stop()
    }
  }
  try {
    await Promise.all(Array.from({ length: Number(values.workers) }, (_, at) => work(String(at))))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  report(outcomes)
  return outcomes.some(({ foundBy }) => foundBy === null) ? 1 : 0
}

/**
 * Gives the title of the test that found the fault, or null. The nearest tests find nearly all, so
 * they run first and alone.
 */
async function tryInSteps(
  checkout: Checkout,
  mutant: Mutant,
  tests: readonly string[],
): Promise<string | null> {
  for (const [from, to] of [
    [0, 2],
    [2, 12],
    [12, tests.length],
  ] as const) {
    for (let isSure = false; !isSure; ) {
      const step = tests.slice(from, to).filter((test) => isTrusted.get(test) !== false)
      const limitMs = LIMIT_MS.run + step.length * LIMIT_MS.file
      const failure = step.length === 0 ? null : await checkout.try(mutant, step, limitMs)
      if (failure === null) break
      isSure = failure.file === '' || (await findTrust(checkout, failure.file, mutant))
      if (isSure) return failure.title
    }
  }
  return null
}

async function findTrust(checkout: Checkout, test: string, mutant: Mutant): Promise<boolean> {
  const known = isTrusted.get(test)
  if (known !== undefined) return known
  const passes = await checkout.passes(test, mutant, LIMIT_MS.run + LIMIT_MS.file)
  isTrusted.set(test, passes)
  if (!passes) console.log(`left out, since it fails without a fault: ${test}`)
  return passes
}

function drawMutants(files: readonly string[]): Mutant[] {
  const folders = values.in ?? ['']
  const all = files
    .filter((file) => SOURCES.test(file) && !NOT_SEEDED.test(file))
    .filter((file) => folders.some((folder) => file.startsWith(folder)))
    .flatMap((file) => {
      const source = readFileSync(path.join(ROOT, file), 'utf8')
      return listMutants(file, source).filter((mutant) => whyEquivalent(mutant, source) === null)
    })
  const random = makeRandom(Number(values.seed))
  const drawn: Mutant[] = []
  while (drawn.length < Number(values.count) && all.length > 0)
    drawn.push(...all.splice(Math.floor(random() * all.length), 1))
  return drawn
}

/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
function makeRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

function describe({ file, rule, start, end }: Mutant): string {
  const source = readFileSync(path.join(ROOT, file), 'utf8')
  const line = source.slice(0, start).split('\n').length
  const text = source.slice(start, end).replaceAll(/\s+/g, ' ')
  return `${file}:${line} ${rule}: ${text.length > 70 ? `${text.slice(0, 70)}…` : text}`
}

function report(outcomes: readonly Outcome[]): void {
  const rooms = Map.groupBy(outcomes, ({ mutant }) => roomOf(mutant.file) ?? '')
  console.log('')
  for (const [room, list] of [...rooms].toSorted(([one], [other]) => one.localeCompare(other)))
    console.log(`${room.padEnd(20)} ${countFound(list)} of ${list.length} found`)
  console.log(`${'all'.padEnd(20)} ${countFound(outcomes)} of ${outcomes.length} found`)
  const survived = outcomes.filter(({ foundBy }) => foundBy === null)
  if (survived.length > 0) console.log('\nsurvived:')
  for (const { mutant } of survived) console.log(`  ${describe(mutant)}`)
}

function countFound(outcomes: readonly Outcome[]): number {
  return outcomes.filter(({ foundBy }) => foundBy !== null).length
}
