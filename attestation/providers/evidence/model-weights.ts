import { decodeBase64, encodeHex, sha256 } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import { decodeUtf8 } from '../../json/decode-utf8.ts'
import { type JsonObject, memberOf } from '../../json/value.ts'
import { blockedBy, established, waived } from '../provider-checks.ts'
import { refuseEvidence } from './evidence-codes.ts'
import { type Judging, type MeasuredModel, type ProviderModel, UNKNOWN_WEIGHTS } from './judging.ts'

/**
 * Makes the check "weights". It fails for weights that the provider only claims. `model` is null if
 * the code that measures the weights is not established.
 */
export async function checkWeights(
  { terms, checks }: Judging,
  model: ProviderModel | null,
): Promise<void> {
  await checks.make('weights', () => {
    if (model === null) return blockedBy('code')
    const { weights, models, reason } = model
    if (terms.weights === null) return waived(`no weights were asked for; ${weights}: ${reason}`)
    if (weights !== 'hardware_proven') throw refuseEvidence('weights_unknown', reason)
    const odd = models.find(({ rootHash }) => !terms.weights?.includes(rootHash))
    if (odd) throw refuseEvidence('weights_not_accepted', 'expected accepted weights and no others')
    return established(true, models.map(({ name, rootHash }) => `${name} ${rootHash}`).join(', '))
  })
}

export type RecordWeights = Pick<ProviderModel, 'weights' | 'reason'> & {
  /** The measured weights. Null unless `hardware_proven`. */
  readonly measured: MeasuredModel | null
}

/**
 * Returns what the evidence shows about the weights of the model that a record calls `id`. The
 * result is `hardware_proven` only if exactly one measured model has this name.
 */
export function weightsOf({ weights, reason, models }: ProviderModel, id: string): RecordWeights {
  if (weights !== 'hardware_proven') return { weights, reason, measured: null }
  const [measured = null, second] = models.filter(({ name }) => name === id)
  if (measured !== null && second === undefined) return { weights, reason, measured }
  const named = second === undefined ? 'does not name this model' : 'names this model twice'
  return { weights: 'unknown', reason: `the measured configuration ${named}`, measured: null }
}

/**
 * Returns the weights that a signed build of Tinfoil measures. The build states that the machine
 * measures its command line. The command line has the hash of the configuration. The configuration
 * names each model and the root hash of its disk.
 */
export function weightsOfBuild(predicate: JsonObject): ProviderModel {
  const [cmdline, config] = [memberOf(predicate, 'cmdline'), memberOf(predicate, 'config')]
  const text = typeof config === 'string' ? textOf(config) : null
  if (typeof cmdline !== 'string' || text === null)
    return unknown('the signed build names no configuration')
  const stated = cmdline.split(/\s+/).filter((part) => part.startsWith(CONFIG_HASH))
  if (stated.length !== 1 || stated[0] !== `${CONFIG_HASH}${encodeHex(sha256(text.bytes))}`)
    return unknown('the measured command line has another configuration')
  const models = readModels(text.text)
  if (models === null) return unknown('the measured configuration names models in another form')
  if (models.length === 0)
    return unknown('the measured configuration names no weights: a router, which asks other hosts')
  const reason = 'the measured configuration has the root hash of each disk of weights'
  return { weights: 'hardware_proven', reason, models }
}

const CONFIG_HASH = 'tinfoil-config-hash='

function unknown(reason: string): ProviderModel {
  return { ...UNKNOWN_WEIGHTS, reason }
}

function textOf(base64: string): { readonly bytes: Uint8Array; readonly text: string } | null {
  try {
    const bytes = decodeBase64(base64)
    return { bytes, text: decodeUtf8(bytes) }
  } catch (fault) {
    if (fault instanceof FormatError) return null
    throw fault
  }
}

/** With one quote alone, YAML reads the lines up to the next quote as one value. */
const MEMBER = /^(?: {2}- | {4})([a-z]+): (?:"([A-Za-z0-9._/@-]+)"|([A-Za-z0-9._/@-]+))$/
/** A repository with a revision, mostly of an owner. */
const REPOSITORY = /^(?:[^/@]+\/)?[^/@]+@[^/@]+$/
/**
 * YAML also ends lines at these characters. This parser splits only at line feeds, so it refuses a
 * text with such characters.
 */
const OTHER_BREAK = /\r(?!\n)|[\u0085\u2028\u2029]/
const DISK = /^([0-9a-f]{64})_[0-9]+_[0-9a-f-]{36}$/

/** A value in quotes that begins and ends where every reader of YAML sees both quotes. */
const QUOTED =
  /(?:^ *(?:- +)*|: +|[[{,] *)(?:"(?:[^"'\\,[\]{}:]|:(?! ))*"|'(?:[^"'\\,[\]{}:]|:(?! ))*')(?= *(?:$|[\]},:]))/g

/**
 * True if the list after this line may be no list for YAML: in another document, of which YAML
 * reads none but the first, or in a value whose quote the line does not close.
 */
function mayHideTheNext(line: string, index: number): boolean {
  if (/^(?:---|\.\.\.)/.test(line)) return line !== '---' || index > 0
  return /["']/.test(line.replace(/(?:^|[ \t])#.*$/, '').replace(QUOTED, ''))
}

/** False for an empty line, and for a comment. */
function isContent(line: string): boolean {
  return line !== '' && !/^[ \t]*#/.test(line)
}

/** Other white space than this is not blank in YAML: a name can end with it. */
function withoutBlanksAtEnd(line: string): string {
  const trimmed = line.trimEnd()
  return /^[ \t\r]*$/.test(line.slice(trimmed.length)) ? trimmed : line
}

/**
 * Reads the list `models` of a configuration (YAML) in the one form that Tinfoil writes: items of
 * name, repo and mpk, one scalar per line, also beside other members. Null for any other form.
 * Empty if there is no list.
 */
function readModels(text: string): readonly MeasuredModel[] | null {
  if (OTHER_BREAK.test(text)) return null
  const lines = text.split('\n').map(withoutBlanksAtEnd)
  const starts = lines.flatMap((line, index) => (/^["']?models["']?\s*:/.test(line) ? [index] : []))
  const [start] = starts
  if (start === undefined) return /(?:^|[\s{,])["']?models["']?\s*:/.test(text) ? null : []
  if (starts.length > 1 || lines[start] !== 'models:') return null
  if (lines.slice(0, start).filter(isContent).some(mayHideTheNext)) return null
  const items: Record<string, string>[] = []
  for (const line of lines.slice(start + 1)) {
    // Before the end of the list, which no comment ends, wherever it begins.
    if (!isContent(line)) continue
    if (/^\S/.test(line)) break
    const [, name, quoted, value = quoted] = MEMBER.exec(line) ?? []
    if (name === undefined || value === undefined) return null
    if (line.startsWith('  - ')) items.push({})
    const item = items.at(-1)
    if (item === undefined || Object.hasOwn(item, name)) return null
    item[name] = value
  }
  const models = items.map(({ name, repo, mpk }) => {
    const [, rootHash] = DISK.exec(mpk ?? '') ?? []
    const isComplete = name && repo && REPOSITORY.test(repo) && rootHash
    return isComplete ? { name, source: repo, rootHash } : null
  })
  return models.some((model) => model === null) ? null : models.filter((model) => model !== null)
}
