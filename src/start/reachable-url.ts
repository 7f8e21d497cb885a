/** Gives where a server that listens on every address is reached from this machine. */
export function reachableUrl(url: string): string {
  return url.replace('://0.0.0.0:', '://127.0.0.1:').replace('://[::]:', '://[::1]:')
}
