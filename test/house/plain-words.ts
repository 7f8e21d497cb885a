import { type JSXChild, type Node, parseSync, type TemplateLiteral, Visitor } from 'oxc-parser'
import { TERMS } from '#src/web/docs/words.ts'

/** A text that a user reads, as one file writes it; `…` stands for each part that is computed. */
export type UserText = { readonly file: string; readonly line: number; readonly text: string }

/** A way of speaking that a reader of English as a second language does not understand at once. */
export type Phrase = { readonly name: string; readonly pattern: RegExp; readonly instead: string }

/** Folders and files whose messages and pages users read. A folder stands for all in it. */
export const READ_BY_USERS: readonly string[] = [
  'src/web',
  'src/cli',
  'src/api',
  'src/verified',
  'src/accounts',
  'src/chat',
  'src/images',
  'src/embeddings',
  'src/search',
  'src/nodes',
  'src/enclaves',
  'src/local',
  'src/agent',
  'client',
  'attestation',
  'packages',
  'README.md',
  'docs',
  'deploy',
]

/** The end of a clause. */
const END = String.raw`(?=\s*(?:[.,;:!?)”"]|$))`

export const PHRASES: readonly Phrase[] = [
  phrase('there is none', 'there (?:is|are) none', 'there are no …'),
  phrase('is none', `(?<!there )(?:is|are|was|were|has|have|had) none${END}`, 'is not a valid …'),
  phrase('is no …', String.raw`(?<!there )is no (?!longer\b|more than\b)\w+`, 'is not a …'),
  phrase('whoever', 'who(?:m|so|se)?ever', 'the person who, if you'),
  phrase('whatever', 'whatever', 'any'),
  phrase('nobody', 'nobody', 'no account, not … by anyone'),
  phrase('somebody', '(?:some|every)body', 'the account, all accounts'),
  phrase('any more', `any more${END}`, 'no longer'),
  phrase('of it', `of it${END}`, 'the name of the thing'),
  phrase('nothing of', 'nothing of', 'no …'),
  phrase('what those show', 'what (?:those|these) show', 'the name of the things'),
  phrase('tells of', 'tells? of', 'reports, shows'),
  phrase('bounds you', 'bounds (?:you|calls|it)', 'limits'),
  phrase('heed', 'heeds?', 'applies'),
  phrase('reckon', String.raw`reckon\w*`, 'computes'),
  phrase('vouch', String.raw`vouch\w*`, 'signs'),
  phrase('stand by', 'stands? by', 'signs'),
  phrase('for good', `for good${END}`, 'forever'),
  phrase('anew', 'anew', 'again'),
  phrase('told', 'told', 'reported'),
  phrase('one that', '(?<=^|[.;:,] )one that', 'a … that'),
  phrase('those that', '(?:those that|the one (?:that(?! was signed)|of))', 'the … that'),
  phrase('got one of', 'got one (?:of|that|over)', 'got a … of'),
  phrase('none for', `none (?:for|twice)`, 'without'),
  phrase('of its own', 'of (?:his|its|their|your) own', 'its own …'),
  phrase('says nothing', 'says nothing', 'has no effect'),
  phrase('nothing was decided', 'nothing (?:was|is) decided', 'there is no result'),
  phrase('has to be', 'ha(?:s|ve) to be', 'must be'),
  phrase('all the same', 'all the same', 'still'),
]

/** What comments do not say either: the field has terms for it. */
export const COMMENT_PHRASES: readonly Phrase[] = [
  // Between engineers these are plain enough.
  ...PHRASES.filter(({ name }) => !['of its own', 'those that', 'has to be'].includes(name)),
  phrase('hear', 'hears?|heard', 'receives, is called with'),
  phrase('tell', 'tells?(?! apart)|telling', 'reports, says, publishes'),
  phrase('noted', 'noted', 'recorded'),
  phrase('attend', String.raw`attend\w*`, 'is on standby'),
  phrase('introduce', String.raw`introduc\w*`, 'registers, shows'),
  phrase(
    'most, as a limit',
    'most (?:bytes|characters|levels|items|members|calls|devices|events|hashes|releases|heads)',
    'maximum …',
  ),
]

/** Between two words, at most three more of the same clause. */
const MORE_WORDS = ' (?:[^ .,;:]+ ){0,3}'

/** What users' texts do not say in place of a term, as docs/words.md has it. */
export const TERM_PHRASES: readonly Phrase[] = TERMS.flatMap(({ term, unused }) =>
  [...unused.matchAll(/`([^`]+)`/g)].map(([, words = '']) =>
    phrase(words, words.split(' … ').map(formsOf).join(MORE_WORDS), term),
  ),
)

/** Words that no name in code contains: the field has terms for what they mean. */
const WORDS = /^(?:tells?|told|telling|hear[sd]?|hearing|note[sd]?|noting|heed\w*|vouch\w*)$/
const STEMS = /^(?:attend|reckon|introduc)/

/** A source without any of these has no such name, and need not be parsed. */
const MAYBE_ODD = /tell|told|hear|not(?:e|ing)|heed|vouch|attend|reckon|introduc/i

/** Names in code that contain such a word, such as `noteOf`, with their lines. */
export function findOddNames(file: string, source: string): readonly string[] {
  if (!MAYBE_ODD.test(source.replace(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*|'[^'\n]*'/g, ''))) return []
  const odd: string[] = []
  const lineAt = lineCounter(source)
  const add = ({ name, start }: { readonly name: string; readonly start: number }): void => {
    const words = name.split(/[_$]|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/)
    const isOdd = words.map((word) => word.toLowerCase()).some(isOddWord)
    if (isOdd) odd.push(`${name}: ${file}:${lineAt(start)}`)
  }
  const { program } = parseSync(file, source)
  new Visitor({ Identifier: add, PrivateIdentifier: add, JSXIdentifier: add }).visit(program)
  return odd
}

function isOddWord(word: string): boolean {
  return WORDS.test(word) || STEMS.test(word)
}

/** Gives the comments of a source: line comments that follow each other are one. */
export function listComments(file: string, source: string): readonly UserText[] {
  const texts: (UserText & { readonly type: string; readonly end: number })[] = []
  const lineAt = lineCounter(source)
  for (const { type, value, start, end } of parseSync(file, source).comments) {
    const text = value
      .replace(/^\*|\n\s*\*? ?/g, ' ')
      .replace(/`[^`]*`/g, '…')
      .replace(/\s+/g, ' ')
      .trim()
    const last = texts.at(-1)
    const isNext = last?.type === 'Line' && /^\s*$/.test(source.slice(last.end, start))
    if (type === 'Line' && isNext)
      texts[texts.length - 1] = { ...last, text: `${last.text} ${text}`, end }
    else texts.push({ file, line: lineAt(start), text, type, end })
  }
  return texts.map(({ file: of, line, text }) => ({ file: of, line, text }))
}

/** Gives the comments of a file that is not TypeScript: lines that begin as a comment does. */
export function listOtherComments(file: string, source: string): readonly UserText[] {
  const texts: UserText[] = []
  let isOpen = false
  source.split('\n').forEach((line, at) => {
    const text = line.match(/^\s*(?:#(?!!)|\/\/|\/?\*+)\s*(.*?)(?:\*\/)?$/)?.[1]
    const last = texts.at(-1)
    const plain = text?.replace(/`[^`]*`/g, '…') ?? ''
    if (text !== undefined && isOpen && last !== undefined)
      texts[texts.length - 1] = { ...last, text: `${last.text} ${plain}` }
    else if (text !== undefined) texts.push({ file, line: at + 1, text: plain })
    isOpen = text !== undefined
  })
  return texts
}

/** Gives the texts of a source that may hold prose: literals, templates and the text of JSX. */
export function listTexts(file: string, source: string): readonly UserText[] {
  if (file.endsWith('.md')) return listProse(file, source)
  const { program, errors } = parseSync(file, source)
  const fault = errors[0]
  if (fault) throw new Error(`${file}: ${fault.message}`)
  const texts: UserText[] = []
  const lineAt = lineCounter(source)
  // The literals of a sum are one text, so that no phrase hides where a line ends.
  const summed = new Set<Node>()
  const add = (node: { readonly start: number }, written: string): void => {
    const text = written
      .replace(/`[^`]*`/g, '…')
      .replace(/\s+/g, ' ')
      .trim()
    // A name, a path or a code is not prose.
    if (!text.includes(' ')) return
    texts.push({ file, line: lineAt(node.start), text })
  }
  const addOnce = (node: Node): void => {
    if (!summed.has(node)) add(node, textOf(node))
  }
  new Visitor({
    BinaryExpression(sum) {
      if (sum.operator !== '+') return
      const parts = partsOf(sum)
      if (!summed.has(sum)) add(sum, parts.map(textOf).join(''))
      for (const part of [sum.left, sum.right, ...parts]) summed.add(part)
    },
    Literal: addOnce,
    TemplateLiteral: addOnce,
    JSXElement: (element) => add(element, element.children.map(textInJsx).join('')),
    JSXFragment: (fragment) => add(fragment, fragment.children.map(textInJsx).join('')),
  }).visit(program)
  return texts
}

/** Gives the line of a place. Asked in the order of the source, it reads the source once. */
export function lineCounter(source: string): (at: number) => number {
  let line = 1
  let next = 0
  return (at) => {
    if (at < next) [line, next] = [1, 0]
    for (;;) {
      const end = source.indexOf('\n', next)
      if (end === -1 || end >= at) return line
      line += 1
      next = end + 1
    }
  }
}

/** The phrases in a text, with what it says there. */
export function findPhrases(
  text: string,
  phrases: readonly Phrase[] = PHRASES,
): readonly { phrase: Phrase; said: string }[] {
  if (!anyOf(phrases).test(text)) return []
  return phrases.flatMap((each) => {
    const said = text.match(each.pattern)?.[0]
    return said === undefined ? [] : [{ phrase: each, said }]
  })
}

/** A line for each phrase in these texts. */
export function faultsOf(
  texts: readonly UserText[],
  phrases: readonly Phrase[],
): readonly string[] {
  return texts.flatMap(({ file, line, text }) =>
    findPhrases(text, phrases).map(
      ({ phrase, said }) => `${file}:${line}: "${said}", better: ${phrase.instead}: ${text}`,
    ),
  )
}

/** One pattern for all phrases: most texts have none of them. */
function anyOf(phrases: readonly Phrase[]): RegExp {
  const known = PATTERNS.get(phrases)
  if (known !== undefined) return known
  const pattern = new RegExp(phrases.map(({ pattern: { source } }) => source).join('|'), 'i')
  PATTERNS.set(phrases, pattern)
  return pattern
}

const PATTERNS = new WeakMap<readonly Phrase[], RegExp>()

function phrase(name: string, words: string, instead: string): Phrase {
  return { name, pattern: new RegExp(String.raw`(?<![\w'-])(?:${words})(?![\w-])`, 'i'), instead }
}

/** Matches words as nouns and verbs: for `judge` also judges, judged, judging. */
function formsOf(words: string): string {
  return words.replace(/\w+/g, (word) =>
    word.endsWith('e') ? `${word.slice(0, -1)}(?:es?|ed|ing)` : `${word}(?:s|ed|ing)?`,
  )
}

/** The parts of `a + b + c`, from left to right. */
function partsOf(node: Node): readonly Node[] {
  return node.type === 'BinaryExpression' && node.operator === '+'
    ? [...partsOf(node.left), ...partsOf(node.right)]
    : [node]
}

function textOf(node: Node): string {
  if (node.type === 'Literal') return typeof node.value === 'string' ? node.value : '…'
  return node.type === 'TemplateLiteral' ? templateText(node) : '…'
}

function templateText({ quasis }: TemplateLiteral): string {
  return quasis.map(({ value }) => value.cooked ?? '').join('…')
}

/** What an element says itself; an element within is visited by itself. */
function textInJsx(child: JSXChild): string {
  if (child.type === 'JSXText') return child.value
  const isSpace =
    child.type === 'JSXExpressionContainer' &&
    child.expression.type === 'Literal' &&
    child.expression.value === ' '
  return isSpace ? ' ' : '…'
}

/** The paragraphs of a page without its code and the targets of its links. */
function listProse(file: string, source: string): readonly UserText[] {
  const texts: UserText[] = []
  let isFenced = false
  let isOpen = false
  source.split('\n').forEach((line, at) => {
    if (line.startsWith('```')) isFenced = !isFenced
    const isProse = !isFenced && !/^(?: {4}|```)|^\s*$/.test(line)
    const text = line
      .replace(/`[^`]*`/g, '…')
      .replace(/\]\([^)]*\)/g, ']')
      .trim()
    const last = texts.at(-1)
    if (isProse && isOpen && last !== undefined && !/^(?:[-*#|]|\d+\.)/.test(text))
      texts[texts.length - 1] = { ...last, text: `${last.text} ${text}` }
    else if (isProse) texts.push({ file, line: at + 1, text })
    isOpen = isProse
  })
  return texts
}
