// Has nothing to do with Keel, and is compiled as if it were not there.
int main() { return 0; }
