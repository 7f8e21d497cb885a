import { availableParallelism } from 'node:os'
import { Command, InvalidArgumentError, Option } from 'commander'
import { z } from 'zod'
import { textTable } from '#src/cli/printable.ts'
import { type ChainEndpoint, startChainEndpoint } from './chain-endpoint.ts'
import { FEATURES, featuresOf, wordsOf } from './command-line.ts'
import { describeExpected, judgeRun, type Result, type Run, type Strictness } from './judge.ts'
import { type ConformanceCase, readManifest, VECTORS } from './manifest.ts'
import { runProgram } from './run-program.ts'

/*
 * Runs any verifier through the cases of test/vectors/manifest.json, and prints a table. README.md
 * of test/vectors says how it calls the verifier, and what it expects.
 */

const FEATURE_NAMES = [...Object.keys(FEATURES), 'attestation']
/** For one case; our verifier takes a tenth of a second to start. */
const TIMEOUT_SECONDS_DEFAULT = 30

const Options = z.object({
  only: z.string().optional(),
  without: z.array(z.string()).default([]),
  verdicts: z.boolean().default(false),
  timeout: z.number().default(TIMEOUT_SECONDS_DEFAULT),
  jobs: z.number().default(availableParallelism()),
  failures: z.boolean().default(false),
  json: z.boolean().default(false),
})
type DriverOptions = z.infer<typeof Options>

const command = new Command('conformance')
  .description('Run a verifier through the published vectors, and compare what it finds.')
  .argument('<program>', 'the verifier; it is called with `verify FILE --json …`')
  .argument('[words...]', 'words that it is called with before those')
  .option('--only <text>', 'the cases whose name has this text')
  .option('--verdicts', 'compare verdicts and exit codes, and no names of checks')
  .option('--timeout <seconds>', 'longest that one case may take (default: 30)', parseCount)
  .option('--jobs <count>', 'cases at once (default: one for each core)', parseCount)
  .option('--failures', 'list only the cases that differ')
  .option('--json', 'print one JSON object')
  .addOption(
    new Option(
      '--without <features>',
      'skip the cases that need these, separated by commas',
    ).argParser(parseFeatures),
  )
  .passThroughOptions()
  .action(async (program: string, words: readonly string[], given: unknown) => {
    process.exitCode = await runAll([program, ...words], Options.parse(given))
  })
await command.parseAsync()

async function runAll(program: readonly string[], options: DriverOptions): Promise<number> {
  const cases = readManifest().cases.filter(({ name }) => name.includes(options.only ?? ''))
  const chosen = cases.filter(
    (one) => !featuresOf(one).some((feature) => options.without.includes(feature)),
  )
  const results = await mapAtOnce(chosen, options.jobs, (one) => runCase(program, one, options))
  const different = results.filter(({ differences }) => differences.length > 0)
  const skipped = cases.length - chosen.length
  process.stdout.write(
    options.json ? printJson(results, skipped) : printText(results, { options, skipped }),
  )
  return results.length > 0 && different.length === 0 ? 0 : 1
}

async function runCase(
  program: readonly string[],
  one: ConformanceCase,
  { timeout, verdicts }: DriverOptions,
): Promise<Result> {
  const strictness: Strictness = verdicts ? 'verdict' : 'report'
  const { chain } = one.demands
  const endpoint: ChainEndpoint | null =
    chain === undefined ? null : await startChainEndpoint(chain)
  try {
    const words = wordsOf(one, { folder: VECTORS, rpcUrl: endpoint?.url ?? null })
    const run: Run = await runProgram(program, words, { timeoutMs: timeout * 1000 })
    return judgeRun(one, run, strictness)
  } finally {
    await endpoint?.close()
  }
}

/** The results of `run` for each item, in order; at most `count` run at once. */
async function mapAtOnce<Item, Out>(
  items: readonly Item[],
  count: number,
  run: (item: Item) => Promise<Out>,
): Promise<readonly Out[]> {
  const results = new Array<Out>(items.length)
  const entries = items.entries()
  const work = async () => {
    for (const [at, item] of entries) results[at] = await run(item)
  }
  await Promise.all(Array.from({ length: count }, work))
  return results
}

function printText(
  results: readonly Result[],
  { options, skipped }: { readonly options: DriverOptions; readonly skipped: number },
): string {
  const different = results.filter(({ differences }) => differences.length > 0)
  const shown = options.failures ? different : results
  const table = textTable(
    ['CASE', 'EXPECTED', 'GOT', 'OK'],
    shown.map((result) => [
      result.case.name,
      describeExpected(result.case),
      result.got,
      result.differences.length === 0 ? 'yes' : 'NO',
    ]),
  )
  const why = different.flatMap(({ case: one, differences }) => [
    `${one.name}: ${one.about}`,
    ...differences.map((difference) => `  ${difference}`),
  ])
  return `${table}\n${why.map((line) => `${line}\n`).join('')}${summarize(results, skipped)}\n`
}

function printJson(results: readonly Result[], skipped: number): string {
  const different = results.filter(({ differences }) => differences.length > 0)
  return `${JSON.stringify(
    {
      ok: results.length > 0 && different.length === 0,
      cases: results.length,
      different: different.length,
      skipped,
      results: results.map(({ case: one, got, differences }) => ({
        name: one.name,
        expected: describeExpected(one),
        got,
        differences,
      })),
    },
    null,
    2,
  )}\n`
}

function summarize(results: readonly Result[], skipped: number): string {
  const different = results.filter(({ differences }) => differences.length > 0).length
  const rest = skipped === 0 ? '' : `, ${skipped} skipped`
  if (results.length === 0) return `NO CASES${rest}`
  return different === 0
    ? `CONFORMS: ${results.length} cases${rest}`
    : `DIFFERS: ${different} of ${results.length} cases${rest}`
}

function parseCount(text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text))
    throw new InvalidArgumentError('expected a number from 1 to 9999')
  return Number(text)
}

function parseFeatures(text: string): readonly string[] {
  const features = text.split(',').map((word) => word.trim())
  if (!features.every((feature) => FEATURE_NAMES.includes(feature)))
    throw new InvalidArgumentError(`expected some of ${FEATURE_NAMES.join(', ')}`)
  return features
}
