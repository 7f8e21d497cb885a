import { dirname, join, normalize } from 'node:path'

/** One link of a page to a file or a heading of the repository. */
export type Link = { readonly file: string; readonly line: number; readonly target: string }

/** The pages and files that links are checked against. */
export type Repository = {
  /** Every path that git knows, relative to the root. */
  readonly paths: ReadonlySet<string>
  /** The text of a page. */
  readonly read: (path: string) => string
}

/** The relative links of a page, images among them. Links in code are text and are left out. */
export function listLinks(file: string, text: string): readonly Link[] {
  return withoutCode(text)
    .split('\n')
    .flatMap((row, index) =>
      [...row.replace(/(`+).*?\1/g, '').matchAll(/\]\(<?([^()\s<>]+)>?(?: "[^"]*")?\)/g)]
        .map(([, target = '']) => target)
        .filter((target) => !/^([a-z][a-z0-9+.-]*:|\/)/i.test(target))
        .map((target) => ({ file, line: index + 1, target })),
    )
}

/** Why a link leads nowhere; null when it leads to a file, and to a heading where it names one. */
export function findLinkFault(link: Link, { paths, read }: Repository): string | null {
  const [path = '', anchor] = link.target.split('#')
  const target = path === '' ? link.file : resolve(link.file, path)
  if (!paths.has(target)) return `there is no ${target}`
  if (anchor === undefined || !target.endsWith('.md')) return null
  return listAnchors(read(target)).has(anchor) ? null : `${target} has no heading #${anchor}`
}

/** The anchors that GitHub gives the headings of a page. Equal headings get -1, -2 and so on. */
export function listAnchors(text: string): ReadonlySet<string> {
  const anchors = new Set<string>()
  for (const [, heading = ''] of withoutCode(text).matchAll(/^ {0,3}#{1,6} +(.+?)(?: +#+)?$/gm)) {
    const slug = slugOf(heading)
    let anchor = slug
    for (let count = 1; anchors.has(anchor); count++) anchor = `${slug}-${count}`
    anchors.add(anchor)
  }
  return anchors
}

/** Every path and every folder above one. */
export function withFolders(paths: readonly string[]): ReadonlySet<string> {
  const all = new Set(paths)
  for (const path of paths) {
    for (let folder = dirname(path); !all.has(folder); folder = dirname(folder)) all.add(folder)
  }
  return all
}

/** GitHub's rule: lower case, no punctuation but hyphens and underscores, a hyphen for each space. */
function slugOf(heading: string): string {
  return heading
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{M}\p{N}\p{Pc} -]/gu, '')
    .replaceAll(' ', '-')
}

/** A page with empty lines in place of its fenced blocks, so that lines keep their numbers. */
function withoutCode(text: string): string {
  return text.replace(/^ *(`{3,}|~{3,}).*?^ *\1/gms, (block) => block.replace(/[^\n]/g, ''))
}

function resolve(from: string, path: string): string {
  return normalize(join(dirname(from), decodeURIComponent(path))).replace(/\/$/, '')
}
