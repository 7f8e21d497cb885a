import type { GivenExpectations } from './job.ts'

/**
 * The expectations that a link to this page may carry: texts that are compared with evidence. A
 * link never carries evidence or content. It carries nothing that would widen trust (roots, any
 * code, debug mode, cut answers) or make the page call an endpoint (a chain's): the maker of the
 * evidence may have written the link. The texts are in the fragment, which browsers do not send.
 */
const LINKED = ['releaseKeys', 'releaseSigners', 'measurements', 'configurations'] as const

export type Linked = Pick<GivenExpectations, (typeof LINKED)[number]>

/** Longest text of one member of a link, characters. */
const MEMBER_LENGTH_MAX = 8_000

/** Gives the fragment that carries these expectations; empty without any. */
export function writeFragment(expectations: GivenExpectations): string {
  const parameters = new URLSearchParams(
    LINKED.flatMap((name) => {
      const text = expectations[name].trim()
      return text === '' ? [] : [[name, text] as [string, string]]
    }),
  )
  const text = parameters.toString()
  return text === '' ? '' : `#${text}`
}

/**
 * Gives the reader's own texts, replaced by the link's texts where the link has some. A link never
 * lowers the number of signers, also not by a text that is not a number.
 */
export function takeLinked<Own extends GivenExpectations>(own: Own, linked: Linked): Own {
  const said = Object.fromEntries(Object.entries(linked).filter(([, text]) => text !== ''))
  const isFewer = countOf(linked.releaseSigners) < countOf(own.releaseSigners)
  const isKept = own.releaseSigners.trim() !== '' && isFewer
  return { ...own, ...said, ...(isKept ? { releaseSigners: own.releaseSigners } : {}) }
}

/** 0 for a text that is not a number. */
function countOf(text: string): number {
  return /^\d+$/.test(text.trim()) ? Number(text) : 0
}

/** Reads an attacker-controlled fragment; null when it carries no expectations. */
export function readFragment(fragment: string): Linked | null {
  const parameters = new URLSearchParams(fragment.replace(/^#/, ''))
  const textOf = (name: (typeof LINKED)[number]) =>
    (parameters.get(name) ?? '').slice(0, MEMBER_LENGTH_MAX)
  const linked: Linked = {
    releaseKeys: textOf('releaseKeys'),
    releaseSigners: textOf('releaseSigners'),
    measurements: textOf('measurements'),
    configurations: textOf('configurations'),
  }
  return Object.values(linked).some((text) => text !== '') ? linked : null
}
