import { CopyButton } from '../kit/values.tsx'

/** A notary, as a link to its log. In another tab: this one would lose its key. */
export function NotaryLink({ notary }: { readonly notary: string }) {
  const short = `${notary.slice(0, 10)}…${notary.slice(-4)}`
  return (
    <span class="value">
      <a
        class="hex"
        href={`/log/${encodeURIComponent(notary)}`}
        target="_blank"
        rel="noopener"
        title={notary}
      >
        {short}
      </a>{' '}
      <CopyButton text={notary} what={short} />
    </span>
  )
}
