import { shortenHex } from '../kit/shorten-hex.ts'
import { CopyButton } from '../kit/values.tsx'
import { NEW_TAB } from './new-tab.ts'

/**
 * Shows a notary as a link to its log. The link opens a new tab. If the reader left this page, this
 * tab's key would be lost.
 */
export function NotaryLink({ notary }: { readonly notary: string }) {
  const short = shortenHex(notary)
  return (
    <span class="value">
      <a class="hex" {...NEW_TAB} href={`/log/${encodeURIComponent(notary)}`} title={notary}>
        {short}
      </a>{' '}
      <CopyButton text={notary} what={short} />
    </span>
  )
}
