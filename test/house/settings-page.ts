import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** A variable, and what its declaration says about it: meaning, default, unit, why. */
type Setting = {
  readonly names: readonly string[]
  readonly text: string
  /** Those of the names that `NAME_FILE` may stand for. */
  readonly secrets: readonly string[]
}

const ROOT = join(import.meta.dirname, '../..')
const PAGE = join(ROOT, 'docs/settings.md')

/** Where the declarations of each process stand; what a schema spreads is looked up in SPREADS. */
const PROCESSES = [
  { title: 'The gateway', file: 'src/config.ts', about: '`npm start`, `node src/main.ts`' },
  {
    title: 'The enclave',
    file: 'enclave/config.ts',
    about:
      '`enclave/main.ts`, for development. A gateway that starts its enclave sets most of them itself. An enclave in ' +
      'an image reads only the file that is measured with the image: the options of the build set chain, contract, ' +
      'providers and authorities, and everything else has its default',
  },
  {
    title: 'A node agent',
    file: 'src/agent/config.ts',
    about: '`affidavit node run`, `affidavit-node run`',
  },
  { title: 'The command line', file: 'src/cli/config.ts', about: '`affidavit`' },
  {
    title: 'The command line, for the operator',
    file: 'src/cli/operator/config.ts',
    about: '`affidavit keys`, `enclaves`, `relayer` and the like',
  },
  {
    title: 'The demo provider',
    file: 'src/local/demo/config.ts',
    about:
      '`npm start` starts it where ENCLAVE_URL is not set, with DEMO_PORT, DEMO_DELAY_MS and DEMO_REPLAY_FOLDER alone; ' +
      '`node src/local/demo/main.ts` reads all',
  },
] as const

const SPREADS: Readonly<Record<string, string>> = {
  traceFields: 'src/observability/trace-settings.ts',
  BUS_FIELDS: 'src/bus/settings.ts',
  CHAIN_FIELDS: 'src/chain/settings.ts',
  CONTENT_KEY_FIELDS: 'src/storage/settings.ts',
  ENCLAVE_FIELDS: 'src/enclaves/settings.ts',
  PROVIDER_FIELDS: 'src/providers/settings.ts',
  UPSTREAM_FIELDS: 'src/upstream/settings.ts',
  SOURCE_FIELDS: 'src/verified/settings.ts',
}

/** Gives docs/settings.md, made of the declarations in the sources: there they are changed. */
export function renderSettings(): string {
  const sections = PROCESSES.map(({ title, file, about }) => {
    const rows = listSettings(file).map(
      ({ names, text }) =>
        `| ${names.map((name) => `\`${name}\``).join(', ')} | ${text.replaceAll('|', '\\|')} |`,
    )
    return [
      `## ${title}`,
      '',
      `${about}. Declared in \`${file}\`.`,
      '',
      '| variable | what it sets |',
      '| --- | --- |',
      ...rows,
      ...describeSecrets(listSettings(file).flatMap(({ secrets }) => secrets)),
    ].join('\n')
  })
  return `# Settings

Every variable of the environment that a process of Affidavit reads, as its declaration describes it. An empty variable counts as unset.
A process that is set up wrongly does not start, and says all that is wrong.

A secret may be in a file, so that it is in no environment: \`NAME_FILE\` names the file for \`NAME\`. It has one line, whose end is left out;
both variables together are a fault, and so is a file that is missing or has more lines. A warning names a file that every user of the machine may read.
Each process below says for which variables there is one.

This page is written by \`npm run docs\` from the declarations; a test holds it to be current.

${sections.join('\n\n')}
`
}

function describeSecrets(names: readonly string[]): readonly string[] {
  if (names.length === 0) return []
  const files = names.map((name) => `\`${name}_FILE\``).join(', ')
  return ['', `Secrets in files: ${files}.`]
}

/** The committed page. */
export function readSettingsPage(): string {
  return readFileSync(PAGE, 'utf8')
}

/** Variables that a file declares, in their order, with those that it takes from others. */
export function listSettings(file: string): readonly Setting[] {
  const source = readFileSync(join(ROOT, file), 'utf8')
  if (file === 'enclave/config.ts') return listNamed(source)
  // The first object of the file: what follows takes its members apart.
  const [fields = ''] =
    /^(?:export )?const \w+ = (?:z\.object\()?\{$[\s\S]*?^\}/m.exec(source) ?? []
  return listFields(fields)
}

/** Fields that are marked by `confidential` (src/runtime/fields.ts). */
const MARK_OF_SECRETS = /\b(secret|privateKey|confidential)\b/

/** Members of a schema. One without a comment of its own is described with the one before it. */
export function listFields(source: string): readonly Setting[] {
  const settings: Setting[] = []
  let comment = ''
  for (const [, doc, name, field = '', spread] of source.matchAll(
    /^ {2}\/\*\*([\s\S]*?)\*\/$|^ {2}([A-Z][A-Z0-9_]*):(.*)$|^ {2}\.\.\.(\w+),$/gm,
  )) {
    const secrets = name !== undefined && MARK_OF_SECRETS.test(field) ? [name] : []
    if (doc !== undefined) comment = textOf(doc)
    else if (spread !== undefined) settings.push(...listSettings(fileOfSpread(spread)))
    else if (name !== undefined) {
      const last = settings.at(-1)
      if (comment !== '') settings.push({ names: [name], text: comment, secrets })
      else if (last)
        settings.splice(-1, 1, {
          ...last,
          names: [...last.names, name],
          secrets: [...last.secrets, ...secrets],
        })
      comment = ''
    }
  }
  return settings
}

/** Throws for an unknown name, because the page would otherwise lack its variables. */
function fileOfSpread(name: string): string {
  const file = SPREADS[name]
  if (file !== undefined) return file
  throw new Error(`expected SPREADS to name the file that declares ${name}`)
}

/** The enclave has no schema library: its comments begin with the name of their variable. */
function listNamed(source: string): readonly Setting[] {
  const comments = [...source.matchAll(/^ {2}\/\*\*([\s\S]*?)\*\//gm)].map(([, doc = '']) =>
    textOf(doc),
  )
  return comments.flatMap((comment) =>
    comment
      .split(/(?<=^|\. )(?=[A-Z][A-Z0-9_]+: )/)
      .map((part) => /^([A-Z][A-Z0-9_]+): (.*)$/.exec(part.trim()))
      .flatMap((match) =>
        match?.[1] && match[2]
          ? [{ names: [match[1]], text: capitalised(match[2]), secrets: [] }]
          : [],
      ),
  )
}

function textOf(doc: string): string {
  return doc.replaceAll(/\s*\n\s*\*\s?/g, ' ').trim()
}

function capitalised(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

if (import.meta.main) writeFileSync(PAGE, renderSettings())
