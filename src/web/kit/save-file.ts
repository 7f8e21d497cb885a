/** Gives the reader a file with this text, as a download. */
export function saveFile(name: string, text: string, type = 'application/json'): void {
  const url = URL.createObjectURL(new Blob([text], { type }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  // Later: some browsers read the URL after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
